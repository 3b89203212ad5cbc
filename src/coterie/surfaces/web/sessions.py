"""Who has come in with the password: it is checked slowly, tried rarely, and never kept. P17

Sessions live in this process only, so a restart asks again. What is remembered of one is a digest: whoever could read
this process's state still could not come in with it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from math import ceil

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from coterie.base.clock import Clock, SystemClock
from coterie.base.errors import CoterieError

SESSION_SECONDS = 30 * 86_400
_FREE_TRIES = 5
_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 900.0
_MOST_CALLERS = 10_000
_HASHED = "$argon2"


class WrongPassword(CoterieError):
    http_status = 401


class TooManyTries(CoterieError):
    http_status = 429

    def __init__(self, wait_s: float) -> None:
        super().__init__("There were too many wrong passwords.", f"Try again in {ceil(wait_s)} s.")
        self.wait_s = wait_s


def hash_password(password: str) -> str:
    return password if password.startswith(_HASHED) else PasswordHasher().hash(password)


class Sessions:
    def __init__(self, password: str, clock: Clock | None = None) -> None:
        """`password` as it is, or the Argon2 hash of it."""
        self._hash = hash_password(password)
        self._clock = clock or SystemClock()
        self._until: dict[bytes, float] = {}
        self._wrong: dict[str, tuple[int, float]] = {}
        # Argon2 takes 64 MB a time: a crowd at the door must not fill the house.
        self._one_at_a_time = asyncio.Semaphore(1)

    async def log_in(self, password: str, caller: str) -> str:
        """A new session's token. Each wrong password of a caller, after a few, makes it wait twice as long."""
        async with self._one_at_a_time:
            now = self._clock.monotonic()
            tries, not_before = self._wrong.get(caller, (0, 0.0))
            if now < not_before:
                raise TooManyTries(not_before - now)
            if not await asyncio.to_thread(self._right, password):
                self._count_wrong(caller, tries + 1)
                raise WrongPassword("That is not the password.", "Try again; `coterie password` sets a new one.")
            self._wrong.pop(caller, None)
            self._until = {digest: until for digest, until in self._until.items() if until > now}
            token = secrets.token_urlsafe(32)
            self._until[_digest(token)] = now + SESSION_SECONDS
            return token

    def is_valid(self, token: str) -> bool:
        until = self._until.get(_digest(token))
        return until is not None and until > self._clock.monotonic()

    def log_out(self, token: str) -> None:
        self._until.pop(_digest(token), None)

    def _right(self, password: str) -> bool:
        try:
            return PasswordHasher().verify(self._hash, password)
        except (VerificationError, InvalidHashError):
            return False

    def _count_wrong(self, caller: str, tries: int) -> None:
        wait = min(_FIRST_WAIT_S * 2.0 ** (tries - _FREE_TRIES), _LONGEST_WAIT_S) if tries >= _FREE_TRIES else 0.0
        if len(self._wrong) >= _MOST_CALLERS:
            self._wrong.pop(next(iter(self._wrong)))
        self._wrong[caller] = (tries, self._clock.monotonic() + wait)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
