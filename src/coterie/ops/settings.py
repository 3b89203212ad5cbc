"""How often the house is put in order."""

from __future__ import annotations

from pydantic import Field, field_validator

from coterie.base.config import Section
from coterie.base.errors import JobError
from coterie.eventstore import Schedule


class StorageSettings(Section):
    """Snapshots and backups. They live beside the database, in `snapshots` and `backups`."""

    snapshot_every_events: int = Field(default=100, ge=1)
    """A snapshot is taken after this many events."""
    snapshot_every_minutes: float = Field(default=30.0, gt=0)
    """… or after this many minutes in which anything happened."""
    keep_snapshots: int = Field(default=5, ge=1)
    """How many snapshots are kept."""
    backup_at: str = Field(default="0 3 * * *")
    """When the nightly backup is taken: a cron expression, in this machine's time zone."""
    keep_backups: int = Field(default=14, ge=1)
    """How many backups are kept."""

    @field_validator("backup_at")
    @classmethod
    def _is_cron(cls, value: str) -> str:
        try:
            Schedule("nightly backup", "backup", cron=value).validate()
        except JobError as error:
            raise ValueError(f'should be a cron expression such as "0 3 * * *" ({error.what})') from None
        return value
