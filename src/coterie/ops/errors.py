"""What can be wrong with what a person asks of the house itself.

ConfigError
└── BadSetting       a change of a setting that does not fit; the file is as it was
"""

from __future__ import annotations

from coterie.base.errors import ConfigError


class BadSetting(ConfigError):
    pass
