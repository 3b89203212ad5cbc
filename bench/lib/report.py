"""Output of a bench: progress while it runs, one JSON object as its last line."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def arguments(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run, under a minute on two cores")
    return parser


def log(text: str) -> None:
    print(text, flush=True)


def progress(done: int, total: int, what: str) -> None:
    """A progress bar, on terminals only."""
    if sys.stderr.isatty():
        filled = 30 * done // max(total, 1)
        end = "\n" if done >= total else ""
        print(f"\r[{'█' * filled}{'·' * (30 - filled)}] {done}/{total} {what} ", end=end, file=sys.stderr, flush=True)


def finish(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder on the disk of the project, ignored by git."""
    home = Path(".bench")
    home.mkdir(exist_ok=True)
    return tempfile.TemporaryDirectory(dir=home)


def percentile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(part * (len(ordered) - 1)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
