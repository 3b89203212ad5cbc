"""What can be wrong with Matrix.

MatrixRefused     the homeserver said no; `code` is its word for it (M_FORBIDDEN …)
LoggedOut         the homeserver no longer knows this login
KeysRefused       the homeserver has other keys of our device than we do
KeysLost          our device's keys are gone, and without the password no new device can take its place
"""

from __future__ import annotations

from coterie.base.errors import CoterieError
from coterie.messaging.errors import PlatformRefused, SurfaceError


class MatrixRefused(PlatformRefused):
    def __init__(self, code: str, told: str, login_session: str = "") -> None:
        """`login_session` where the homeserver would do it if the password came with it."""
        super().__init__(f"The homeserver refused: {told} ({code}).", "Look at the account's rights there.")
        self.code = code
        self.login_session = login_session


class LoggedOut(CoterieError):
    exit_code = 34


class KeysRefused(SurfaceError):
    pass


class KeysLost(CoterieError):
    exit_code = 35
