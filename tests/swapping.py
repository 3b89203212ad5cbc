"""A process that swaps a folder with a symbolic link in a tight loop, as a hostile command would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SWAP = """
import ctypes, os, sys
folder, link = (name.encode() for name in sys.argv[1:])
renameat2 = ctypes.CDLL(None).renameat2
print("swapping", flush=True)
while os.getppid() != 1:
    for _ in range(1000):
        renameat2(-100, folder, -100, link, 2)  # RENAME_EXCHANGE
"""


@contextmanager
def swapping(folder: Path, outside: Path) -> Iterator[None]:
    """Meanwhile, `folder` is a link to `outside` about half of the time."""
    folder.mkdir(parents=True, exist_ok=True)
    link = folder.with_name("swapped-link")
    link.symlink_to(outside)
    command = [sys.executable, "-c", _SWAP, str(folder), str(link)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"swapping\n"
        try:
            yield
        finally:
            process.kill()
