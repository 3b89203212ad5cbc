"""Errors of messages on their way from or to a platform.

RoomError
├── NoSuchMode             there is no such mode
├── NoSuchQuestion         a question about a connection is no longer open
└── BadFile                a file that may not be stored, or does not exist

SurfaceError               a platform did not take a message
├── PlatformUnreachable    it did not answer, or not in time; it may have taken the message
├── PlatformRateLimited    it asks to wait, and says for how long
└── PlatformRefused        it will never take this message
"""

from __future__ import annotations

from coterie.base.errors import CoterieError
from coterie.conversation import RoomError


class NoSuchMode(RoomError):
    pass


class NoSuchQuestion(RoomError):
    http_status = 404


class BadFile(RoomError):
    exit_code = 32


class SurfaceError(CoterieError):
    exit_code = 33


TRIED_AGAIN = "It is tried again."


class PlatformUnreachable(SurfaceError):
    """`ambiguous` if the platform may have taken the message before the connection broke."""

    def __init__(self, what: str, fix: str = TRIED_AGAIN, *, ambiguous: bool = True) -> None:
        super().__init__(what, fix)
        self.ambiguous = ambiguous


class PlatformRateLimited(SurfaceError):
    def __init__(self, what: str, retry_after_s: float, fix: str = "It is tried again after that.") -> None:
        super().__init__(what, fix)
        self.retry_after_s = retry_after_s


class PlatformRefused(SurfaceError):
    pass
