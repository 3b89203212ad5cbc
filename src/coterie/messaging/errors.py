"""What can be wrong with a message on its way from or to a platform.

RoomError
├── NoSuchMode        there is no such kind of chat
└── BadFile           a file that may not be kept, or is not there

SurfaceError          a platform did not take what it was given
├── Unreachable       it did not answer, or not in time; it may have taken it all the same
├── RateLimited       it asks for patience, and says for how long
└── Refused           it will not take this, however often it is tried
"""

from __future__ import annotations

from coterie.base.errors import CoterieError
from coterie.conversation.errors import RoomError


class NoSuchMode(RoomError):
    pass


class BadFile(RoomError):
    exit_code = 32


class SurfaceError(CoterieError):
    exit_code = 33


class PlatformUnreachable(SurfaceError):
    """`ambiguous` where the platform may have taken it before the line broke."""

    def __init__(self, what: str, fix: str = "It is tried again.", *, ambiguous: bool = True) -> None:
        super().__init__(what, fix)
        self.ambiguous = ambiguous


class PlatformRateLimited(SurfaceError):
    def __init__(self, what: str, retry_after_s: float, fix: str = "It is tried again after that.") -> None:
        super().__init__(what, fix)
        self.retry_after_s = retry_after_s


class PlatformRefused(SurfaceError):
    pass
