"""The whole error tree. Every error says what happened and what the person can do next.

    CoterieError
    ├── ConfigError              a setting is wrong, missing or misspelt
    ├── MissingExtra             an optional part is not installed
    ├── InUse                    another process holds the data folder
    ├── StorageError             the disk or the file would not take it
    │   ├── ReadOnly             the data folder cannot be written
    │   ├── DiskFull             no room left; nothing was changed
    │   ├── Corrupt              the database file is damaged
    │   ├── SchemaTooNew         the database was written by a newer Coterie
    │   └── BackupError          a backup could not be taken or is not sound
    ├── LogError                 the log refused an append or a read
    │   ├── Conflict             somebody else wrote to the stream first
    │   ├── UnknownEvent         an event of a kind or version this Coterie does not know
    │   ├── BadEvent             a payload that does not fit its kind
    │   └── BadPoint             a rewind, fork or redo to a place that does not exist
    ├── SecretsError             the secrets store cannot do this
    │   └── WrongPassphrase      the passphrase does not open it
    ├── JobError                 a job cannot be handled as asked
    │   └── LeaseLost            somebody else took the job over; its result was not recorded
    └── SlowConsumer             a listener fell behind; resume from the log

Rooms add their own leaves by subclassing these, in one `errors.py` per room.
"""

from __future__ import annotations

from typing import ClassVar


class CoterieError(Exception):
    """Something a person can act on: `what` happened, and the `fix` that comes next."""

    exit_code: ClassVar[int] = 1
    """What a command exits with."""
    http_status: ClassVar[int] = 400
    """What an HTTP request is answered with."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what} {self.fix}"


class ConfigError(CoterieError):
    exit_code = 2


class MissingExtra(CoterieError):
    exit_code = 3

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs a part that is not installed.",
            f'Install it with: pip install "coterie[{extra}]"',
        )


class InUse(CoterieError):
    exit_code = 4


class StorageError(CoterieError):
    http_status = 503  # not the fault of whoever asked
    exit_code = 5


class ReadOnly(StorageError):
    pass


class DiskFull(StorageError):
    exit_code = 6


class Corrupt(StorageError):
    exit_code = 7


class SchemaTooNew(StorageError):
    exit_code = 8


class BackupError(StorageError):
    exit_code = 9


class LogError(CoterieError):
    exit_code = 10


class Conflict(LogError):
    http_status = 409


class UnknownEvent(LogError):
    exit_code = 11


class BadEvent(LogError):
    pass


class BadPoint(LogError):
    pass


class SecretsError(CoterieError):
    exit_code = 12


class WrongPassphrase(SecretsError):
    pass


class JobError(CoterieError):
    http_status = 404


class LeaseLost(JobError):
    pass


class SlowConsumer(CoterieError):
    pass
