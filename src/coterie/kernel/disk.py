"""Making files durable: the bytes, and then the name that leads to them."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_in_place(draft: Path, path: Path) -> None:
    """Give a finished file its name, so that after a crash it is there whole or not at all."""
    sync(draft)
    draft.replace(path)
    sync(path.parent)
