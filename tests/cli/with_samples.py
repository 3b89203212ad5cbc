"""The command line with the sample projections and kinds: `python -m tests.cli.with_samples COMMAND …`.

`SAMPLE_MAX_PAGES` limits the size of every database of the process, to simulate a full disk.
`SAMPLE_FREE_MB` is the reported free space, `SAMPLE_WITHOUT` a module that is treated as not installed.
"""

from __future__ import annotations

import os
import shutil
import sys

import apsw

import coterie.app
from bench.lib.sample_events import sample_projections
from coterie.cli import main


def _limit(connection: apsw.Connection) -> None:
    connection.execute(f"PRAGMA max_page_count = {int(os.environ['SAMPLE_MAX_PAGES'])}").fetchall()


if __name__ == "__main__":
    coterie.app.all_projections = sample_projections
    if "SAMPLE_MAX_PAGES" in os.environ:
        apsw.connection_hooks.append(_limit)
    if "SAMPLE_FREE_MB" in os.environ:
        free = int(os.environ["SAMPLE_FREE_MB"]) << 20
        shutil.disk_usage = lambda _: shutil._ntuple_diskusage(free, 0, free)  # type: ignore[assignment]
    if "SAMPLE_WITHOUT" in os.environ:
        sys.modules[os.environ["SAMPLE_WITHOUT"]] = None  # type: ignore[assignment]
    main()
