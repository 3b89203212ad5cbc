"""One process owns a database at a time. The operating system releases the lock if that process dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from coterie.base.errors import InUse, ReadOnly


class ProcessLock:
    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        try:
            file = self._path.open("a+")
        except OSError as error:
            raise ReadOnly(
                f"The folder {self._path.parent} cannot be written to ({error.strerror}).",
                "Give yourself write access to it, or choose another place with COTERIE_HOME.",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise InUse(
                f"Another Coterie (process {holder}) is using {self._path.with_suffix('')}.",
                "Stop it first, or give this one its own folder with COTERIE_HOME.",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
