"""Putting a backup back: it takes the place of the database, and what was there is kept beside it. S28"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from coterie.base.home import Home
from coterie.kernel.backup import Tell, restore
from coterie.kernel.snapshot import prune
from coterie.kernel.view import View


def put_back(
    home: Home,
    backup: Path,
    now: datetime,
    views: Sequence[View],
    *,
    ask: Callable[[], object] = lambda: None,
    tell: Tell = lambda _what, _done, _most: None,
) -> Path | None:
    """Nothing may have the database open. Returns where the replaced one is kept, if there was one."""
    kept = restore(backup, home.database, now, views, ask, tell)
    for folder in (home.periodic_snapshots, home.rewind_snapshots):
        prune(folder, keep=0)  # they tell of a life that the restored log may never have
    return kept
