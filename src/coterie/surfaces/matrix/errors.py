"""What can be wrong with Matrix.

MatrixRefused     the homeserver said no; `code` is its word for it (M_FORBIDDEN …)
LoggedOut         the homeserver no longer knows this login
"""

from __future__ import annotations

from coterie.base.errors import CoterieError
from coterie.engine.errors import Refused


class MatrixRefused(Refused):
    def __init__(self, code: str, told: str) -> None:
        super().__init__(f"The homeserver refused: {told} ({code}).", "Look at the account's rights there.")
        self.code = code


class LoggedOut(CoterieError):
    exit_code = 34
