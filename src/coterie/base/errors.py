"""The base of the error tree. Every error says what happened and what the person can do next.

    CoterieError
    ├── ConfigError              a setting is wrong, missing or misspelt
    ├── ConfirmationNeeded       only with the owner's password, in the file or on the command line
    ├── MissingExtra             an optional dependency is not installed
    ├── InUse                    another process holds the data folder
    ├── StorageError             the disk or the file refused a read or write
    │   ├── ReadOnly             the data folder cannot be written
    │   ├── DiskFull             no space left; nothing was changed
    │   ├── Corrupt              the database file is damaged
    │   ├── SchemaTooNew         the database was written by a newer Coterie
    │   └── BackupError          a backup could not be taken or is damaged
    ├── LogError                 the log refused an append or a read
    │   ├── Conflict             the stream has events that the caller did not know
    │   ├── UnknownEvent         an event of an unknown kind or version
    │   ├── BadEvent             a payload that is not valid for its kind
    │   ├── BadPoint             a rewind, fork or redo to a position that does not exist
    │   └── SecretInName         an id or a name contains a configured secret
    ├── SecretsError             the secrets store refused an operation
    │   └── WrongPassphrase      the passphrase does not decrypt it
    ├── JobError                 a job cannot be handled as asked
    │   └── LeaseLost            another worker has the job now; the result was not recorded
    ├── UnsafePath               a path leads out of its folder, or through a symbolic link
    ├── SlowConsumer             a subscriber fell behind; resume from the log
    ├── TooMuchWork              processing an input took too much time or memory and was stopped
    └── WorkersBusy              too much work waits already; try again later

Other packages subclass these, in their `errors.py`.
"""

from __future__ import annotations

from typing import ClassVar


class CoterieError(Exception):
    """An error that a person can act on: `what` happened, and the `fix` to apply."""

    exit_code: ClassVar[int] = 1
    """The exit code of a command."""
    http_status: ClassVar[int] = 400
    """The status of an HTTP response."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what, fix)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.what} {self.fix}"


class ConfigError(CoterieError):
    exit_code = 2


class ConfirmationNeeded(CoterieError):
    """The page asked for something that gives power over this machine. `fix` says how to do it without the page."""

    http_status = 403


class MissingExtra(CoterieError):
    exit_code = 3

    def __init__(self, extra: str, needed_for: str) -> None:
        super().__init__(
            f"{needed_for} needs a package that is not installed.",
            f'Install it with: pip install "coterie[{extra}]"',
        )


class InUse(CoterieError):
    exit_code = 4


class StorageError(CoterieError):
    http_status = 503
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


class SecretInName(LogError):
    pass


class SecretsError(CoterieError):
    exit_code = 12


class WrongPassphrase(SecretsError):
    pass


class JobError(CoterieError):
    http_status = 404


class LeaseLost(JobError):
    pass


class UnsafePath(CoterieError):
    pass


class SlowConsumer(CoterieError):
    pass


class TooMuchWork(CoterieError):
    http_status = 422


class WorkersBusy(CoterieError):
    http_status = 503
