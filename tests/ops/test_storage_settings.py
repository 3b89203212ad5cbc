from __future__ import annotations

from pathlib import Path

import pytest

from coterie.base.config import Section, load_config
from coterie.base.errors import ConfigError
from coterie.ops.backups import StorageSettings


class Model(Section):
    storage: StorageSettings = StorageSettings()


def test_s27_s28_the_defaults_are_what_the_spec_says() -> None:
    settings = StorageSettings()
    assert (settings.snapshot_every_events, settings.snapshot_every_minutes, settings.keep_snapshots) == (100, 30, 5)
    assert (settings.backup_at, settings.keep_backups) == ("0 3 * * *", 14)


@pytest.mark.parametrize("cron", ["", "3 o'clock", "0 25 * * *", "0 3 * *"])
def test_an_invalid_backup_time_is_refused(tmp_path: Path, cron: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(f'[storage]\nbackup_at = "{cron}"\n')
    with pytest.raises(ConfigError, match="should be a cron expression") as caught:
        load_config(Model, file=path)
    assert "storage.backup_at (config.toml line 2)" in caught.value.what
