"""One writer at a time on a branch, across threads and processes; the system lets go when a process dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def branch_lock(git_folder: Path, branch: str) -> Iterator[None]:
    """Held on a file of its own: each open file has its own lock, so threads exclude each other too."""
    folder = git_folder / "coterie"
    folder.mkdir(exist_ok=True)
    name = hashlib.sha256(branch.encode()).hexdigest()[:16]
    handle = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
