"""Writing files atomically."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def write_atomic(path: Path, data: bytes, *, mode: int | None = None, durable: bool = True) -> None:
    """Replace a file's content atomically: readers see all of the new content or the old one, also after a crash.

    `mode` sets the permissions; by default an existing file keeps its own, and a new one gets 0o644. `durable` waits
    until the bytes are on the disk.
    """
    if mode is None:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_private_json(path: Path, data: Mapping[str, str]) -> None:
    """Write a JSON file atomically that only its owner can read; create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, json.dumps(data).encode(), mode=0o600)
