"""What can be wrong with what a person asks of the house itself.

ConfigError
└── BadSetting         a change of a setting that does not fit; the file is as it was
BackupError
├── NoSuchBackup
├── UnsoundBackup      it would not open, or would not hold
└── NotFromHere        whoever runs this house does not start it anew
"""

from __future__ import annotations

from coterie.base.errors import BackupError, ConfigError


class BadSetting(ConfigError):
    http_status = 422


class NoSuchBackup(BackupError):
    http_status = 404


class UnsoundBackup(BackupError):
    http_status = 422


class NotFromHere(BackupError):
    http_status = 409
