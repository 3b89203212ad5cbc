"""Who may come in: people are known by their accounts, strangers are turned away politely. P3

A stranger learns nothing: no character, no room, not even whether anybody is here. They may show a code that they were
given, or, if the house pairs, get one to show to the owner. Neither can be used to make the house talk endlessly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from coterie.base.clock import Clock
from coterie.characters.errors import BadCode
from coterie.characters.people import People
from coterie.messaging.protocol import (
    Account,
    Incoming,
    IncomingCommand,
    MemberChange,
    Outgoing,
    OutgoingNotification,
    RoomRef,
)
from coterie.messaging.rooms import Rooms
from coterie.messaging.settings import SurfacesSettings

REFUSAL = "I am sorry, I only talk with people I know. If you were given a code, write: {mark}link CODE"
PAIRING = "I do not know you yet. Show this code to whoever runs me, within {minutes} minutes: {code}"
_WRONG_CODES = 5
_HOUR = timedelta(hours=1)


class Permissions:
    def __init__(
        self,
        people: People,
        clock: Clock,
        settings: SurfacesSettings,
        command_prefixes: dict[str, str],
        rooms: Rooms,
    ) -> None:
        """`mark_of` tells what begins a command on each surface."""
        self._people = people
        self._rooms = rooms
        self._clock = clock
        self._settings = settings
        self._mark_of = command_prefixes
        self._told: dict[tuple[str, str], datetime] = {}
        self._wrong: dict[tuple[str, str], deque[datetime]] = {}

    def is_known(self, account: Account) -> bool:
        return self._people.by_account(account.surface, account.id) is not None

    def may_speak_in(self, account: Account, room: RoomRef) -> bool:
        """Whether what they say may be answered together with what others say there."""
        person, bound = self._people.by_account(account.surface, account.id), self._rooms.find(room)
        if person is None or bound is None:
            return person is not None
        return person.is_owner or person.id == bound.person or self._rooms.is_guest(room, person.id)

    async def refuse(self, incoming: Incoming) -> AsyncIterator[Outgoing]:
        account = incoming.account
        if isinstance(incoming, IncomingCommand) and incoming.name == "link" and incoming.arguments.strip():
            yield OutgoingNotification(room=incoming.room, text=await self._try_code(account, incoming.arguments))
        elif isinstance(incoming, MemberChange):
            return
        elif (text := await self._refusal(account)) is not None:
            yield OutgoingNotification(room=incoming.room, text=text)

    async def _refusal(self, account: Account) -> str | None:
        who, now = (account.surface, account.id), self._clock.now()
        if self._settings.strangers == "pair":
            minutes = self._settings.code_minutes
            asking = await self._people.request_pairing(*who, account.name, minutes)
            return PAIRING.format(minutes=minutes, code=asking.code) if asking is not None else None
        if who in self._told and now - self._told[who] < _HOUR:
            return None
        self._told = {known: at for known, at in self._told.items() if now - at < _HOUR}
        self._told[who] = now
        return REFUSAL.format(mark=self._mark_of.get(account.surface, "/"))

    async def _try_code(self, account: Account, code: str) -> str:
        who, now = (account.surface, account.id), self._clock.now()
        wrong = self._wrong.setdefault(who, deque(maxlen=_WRONG_CODES))
        if len(wrong) == _WRONG_CODES and now - wrong[0] < _HOUR:
            return "Too many codes were wrong. Try again in an hour."
        try:
            person = await self._people.link(code, *who, account.name)
        except BadCode as error:
            wrong.append(now)
            return str(error)
        self._wrong.pop(who, None)
        return f"Welcome, {person.name}. This account is yours now; write as you like."
