"""The paths of the data folder, `COTERIE_HOME`, which holds everything that belongs in a backup."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coterie.base.errors import ReadOnly


@dataclass(frozen=True)
class Paths:
    root: Path
    config: Path
    database: Path

    @classmethod
    def locate(cls, environ: Mapping[str, str] | None = None) -> Paths:
        env = os.environ if environ is None else environ
        if chosen := env.get("COTERIE_HOME"):
            root = Path(chosen)
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
