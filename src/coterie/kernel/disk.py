"""Making files durable: the bytes, and then the name that leads to them."""

from __future__ import annotations

import os
from pathlib import Path


def fsync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_file(temporary: Path, path: Path) -> None:
    """Give a finished file its name, so that after a crash it is there whole or not at all."""
    fsync_path(temporary)
    temporary.replace(path)
    fsync_path(path.parent)
