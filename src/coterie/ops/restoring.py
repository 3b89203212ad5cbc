"""Putting a backup back: it takes the place of the database, and what was there is kept beside it. S28"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from coterie.base.home import Paths
from coterie.kernel.backup import StepProgress, restore
from coterie.kernel.snapshot import prune_snapshots
from coterie.kernel.view import Projection


def restore_backup(
    paths: Paths,
    backup: Path,
    now: datetime,
    projections: Sequence[Projection],
    *,
    confirm: Callable[[], object] = lambda: None,
    progress: StepProgress = lambda _what, _done, _most: None,
) -> Path | None:
    """Nothing may have the database open. Returns where the replaced one is kept, if there was one."""
    kept = restore(backup, paths.database, now, projections, confirm, progress)
    for folder in (paths.periodic_snapshots, paths.rewind_snapshots):
        prune_snapshots(folder, keep=0)  # they tell of a life that the restored log may never have
    return kept
