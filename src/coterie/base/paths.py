"""The paths of the data folder, `COTERIE_HOME`, and atomic writes of files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from coterie.base.errors import ReadOnly


@dataclass(frozen=True)
class Paths:
    root: Path
    config: Path
    database: Path

    @classmethod
    def locate(cls, environ: Mapping[str, str] | None = None) -> Paths:
        env = os.environ if environ is None else environ
        if home := env.get("COTERIE_HOME"):
            root = Path(home)
        else:
            from platformdirs import user_data_path

            root = user_data_path("coterie", appauthor=False)
        root = root.expanduser().absolute()
        return cls(
            root=root,
            config=Path(env.get("COTERIE_CONFIG") or root / "config.toml").expanduser().absolute(),
            database=Path(env.get("COTERIE_DB_PATH") or root / "coterie.db").expanduser().absolute(),
        )

    @property
    def periodic_snapshots(self) -> Path:
        return self.root / "snapshots" / "periodic"

    @property
    def rewind_snapshots(self) -> Path:
        return self.root / "snapshots" / "rewind"

    @property
    def backups(self) -> Path:
        return self.root / "backups"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets.json"

    @property
    def server_file(self) -> Path:
        """The address of the running server, and the key with which commands go through it."""
        return self.root / "server.json"

    @property
    def models(self) -> Path:
        """Downloaded models, and what is known about those of providers."""
        return self.root / "models"

    def workspace(self, character: str) -> Path:
        return self.root / "workspaces" / character

    def prepare(self) -> None:
        """Create the folders, readable by the owner only. `ReadOnly` if that fails."""
        for folder in (
            self.root,
            self.database.parent,
            self.periodic_snapshots,
            self.rewind_snapshots,
            self.backups,
        ):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise ReadOnly(
                    f"The folder {folder} cannot be created ({error.strerror}).",
                    "Give yourself write access to it, or choose another place with COTERIE_HOME.",
                ) from error
        for folder in {self.root, self.database.parent}:
            if not os.access(folder, os.W_OK):
                raise ReadOnly(
                    f"The folder {folder} cannot be written to.",
                    "Give yourself write access to it, or choose another place with COTERIE_HOME.",
                )


def fsync_path(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def publish_file(temporary: Path, path: Path) -> None:
    """Rename a finished file durably: after a crash it is there completely or not at all."""
    fsync_path(temporary)
    temporary.replace(path)
    fsync_path(path.parent)


@contextmanager
def open_atomic(path: Path, *, mode: int | None = None, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` at the end of the context, and is removed after an error.

    Readers see all of the new content or the old one, also after a crash. `mode` sets the permissions; by default an
    existing file keeps its own, and a new one gets 0o644. `durable` waits until the bytes and the name are on the disk.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        with path.open("wb") as device:  # such as /dev/stdout: it cannot be replaced
            yield device
        return
    if mode is None:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        if durable:
            publish_file(temporary, path)
        else:
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, data: bytes, *, mode: int | None = None, durable: bool = True) -> None:
    """Replace a file's content atomically, as `open_atomic` does."""
    with open_atomic(path, mode=mode, durable=durable) as file:
        file.write(data)


def write_private_json(path: Path, data: Mapping[str, str]) -> None:
    """Write a JSON file atomically that only its owner can read; create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, json.dumps(data).encode(), mode=0o600)
