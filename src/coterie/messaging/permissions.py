"""Who may talk here: accounts that belong to a known person. Strangers are refused or offered a pairing code.

A refusal discloses no character and no room, and in a group nothing is said in public. Refusals and wrong codes are
rate-limited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta

from coterie.base.clock import Clock
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.characters import BadCode, People
from coterie.messaging.errors import SurfaceError
from coterie.messaging.ports import Surface
from coterie.messaging.protocol import (
    Account,
    Incoming,
    IncomingCommand,
    MemberChange,
    Outgoing,
    OutgoingNotification,
    RoomRef,
    RoomTitleChange,
)
from coterie.messaging.settings import SurfacesSettings

REFUSAL = "I am sorry, I only talk with people I know. If you were given a code, write: {prefix}link CODE"
PAIRING = "I do not know you yet. Show this code to the owner within {minutes} minutes: {code}"
_MAX_WRONG_CODES = 5
_HOUR = timedelta(hours=1)
_log = get_logger(__name__)


class Permissions:
    def __init__(
        self,
        people: People,
        clock: Clock,
        settings: SurfacesSettings,
        surfaces: Mapping[str, Surface],
    ) -> None:
        self._people = people
        self._clock = clock
        self._settings = settings
        self._surfaces = surfaces
        self._refused_at: dict[tuple[str, str], datetime] = {}
        self._wrong_codes: dict[tuple[str, str], deque[datetime]] = {}

    def is_known(self, account: Account) -> bool:
        return self._people.by_account(account.surface, account.id) is not None

    async def refuse(self, incoming: Incoming) -> AsyncIterator[Outgoing]:
        """The answer to a stranger, if there is to be one; a valid code links the account."""
        account = incoming.account
        if isinstance(incoming, IncomingCommand) and incoming.name == "link" and incoming.arguments.strip():
            yield OutgoingNotification(room=incoming.room, text=await self._try_code(account, incoming.arguments))
        elif isinstance(incoming, MemberChange):
            if incoming.change == "invited" and incoming.group:
                await self._surfaces[incoming.room.surface].leave_room(incoming.room)
        elif isinstance(incoming, RoomTitleChange):
            return
        else:
            room = await self._private_room(incoming)
            text = await self._refusal(account) if room is not None else None
            if room is not None and text is not None:
                yield OutgoingNotification(room=room, text=text)

    async def _private_room(self, incoming: Incoming) -> RoomRef | None:
        """Where only the stranger reads the answer; None for no answer."""
        if not incoming.group:
            return incoming.room
        if self._settings.strangers != "pair":
            return None
        try:
            return await self._surfaces[incoming.room.surface].direct_room(incoming.account)
        except SurfaceError as error:
            _log.info("no direct chat with a stranger", surface=incoming.room.surface, error=redact(str(error)))
            return None

    async def _refusal(self, account: Account) -> str | None:
        key, now = (account.surface, account.id), self._clock.now()
        if self._settings.strangers == "pair":
            minutes = self._settings.code_minutes
            pairing = await self._people.request_pairing(*key, account.name, minutes)
            return PAIRING.format(minutes=minutes, code=pairing.code) if pairing is not None else None
        if key in self._refused_at and now - self._refused_at[key] < _HOUR:
            return None
        self._refused_at = {refused: at for refused, at in self._refused_at.items() if now - at < _HOUR}
        self._refused_at[key] = now
        surface = self._surfaces.get(account.surface)
        return REFUSAL.format(prefix=surface.capabilities.command_prefix if surface is not None else "/")

    async def _try_code(self, account: Account, code: str) -> str:
        key, now = (account.surface, account.id), self._clock.now()
        wrong_at = self._wrong_codes.setdefault(key, deque(maxlen=_MAX_WRONG_CODES))
        if len(wrong_at) == _MAX_WRONG_CODES and now - wrong_at[0] < _HOUR:
            return "Too many codes were wrong. Try again in an hour."
        try:
            person = await self._people.link(code, *key, account.name)
        except BadCode as error:
            wrong_at.append(now)
            return str(error)
        self._wrong_codes.pop(key, None)
        return f"Welcome, {person.name}. This account is yours now; write as you like."
