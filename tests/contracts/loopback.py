"""An in-memory platform with the faults of real ones: repeated deliveries, rate limits, broken connections.

`Platform` is what the contract suite works with; adapters of real platforms bring their own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from coterie.messaging.errors import PlatformRateLimited, PlatformRefused, PlatformUnreachable
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import Capabilities, EditPace, Surface
from coterie.messaging.protocol import (
    Account,
    Deliverable,
    Incoming,
    IncomingCommand,
    IncomingMessage,
    OutgoingReaction,
    OutgoingUI,
    RoomRef,
)

Fault = Literal["patience", "hung up", "taken, then hung up", "refused", "stuck after taking"]


class Platform(Protocol):
    surface: Surface

    async def say(self, who: str, room: str, text: str, key: str, *, times: int = 1) -> None:
        """Write as a user; the platform delivers the message `times` times."""
        ...

    def account(self, who: str) -> str:
        """The platform's account id of a user."""
        ...

    def shown(self, room: str) -> list[str]:
        """Our messages in a room, oldest first."""
        ...

    def fail_next(self, *faults: Fault) -> None:
        """The next calls fail, in this order."""
        ...

    def most_edits(self) -> int:
        """How often the most edited message was edited."""
        ...

    def reconnect(self, router: MessageRouter) -> None:
        """Attach to the router of a new process."""
        ...


@dataclass
class _Message:
    text: str
    edits: int = 0


@dataclass
class Loopback:
    dedupes: bool = True
    name: str = "loopback"
    shown_in: dict[str, dict[str, _Message]] = field(default_factory=lambda: defaultdict(dict))
    faults: list[Fault] = field(default_factory=list)
    typing_in: list[tuple[str, bool]] = field(default_factory=list)
    taken: Callable[[str], None] = lambda _: None
    """Called with each token as it arrives."""

    def __post_init__(self) -> None:
        self.capabilities = Capabilities(
            max_length=4_000,
            deduplicates=self.dedupes,
            can_edit=True,
            pace=EditPace(min_interval_s=0.001, max_interval_s=0.004, idle_s=0.002),
            command_prefix="!",
            can_create_rooms=True,
        )
        self.surface: Surface = self
        self._router: MessageRouter | None = None
        self._made: dict[str, RoomRef] = {}

    # --- the adapter -------------------------------------------------------------------------------------------

    async def send(self, outgoing: Deliverable, token: str) -> str:
        fault = self._fault()
        room = self.shown_in[outgoing.room.id]
        message_id = token if self.dedupes else f"{token}#{len(room)}"
        room.setdefault(message_id, _Message(_text(outgoing)))
        self.taken(token)
        await self._after(fault)
        return message_id

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        fault = self._fault()
        shown = self.shown_in[outgoing.room.id][message]
        shown.text, shown.edits = _text(outgoing), shown.edits + 1
        await self._after(fault)

    async def typing(self, room: RoomRef, on: bool) -> None:
        self.typing_in.append((room.id, on))

    async def create_room(self, person: Account, title: str, key: str) -> RoomRef:
        return self._made.setdefault(key, RoomRef(surface=self.name, id=f"made-{len(self._made)}-{title}"))

    async def rename_room(self, room: RoomRef, title: str) -> None:
        """Rooms have no names here."""

    # --- the platform ------------------------------------------------------------------------------------------

    async def say(self, who: str, room: str, text: str, key: str, *, times: int = 1) -> None:
        incoming: Incoming = IncomingMessage(
            account=Account(surface=self.name, id=who, name=who.title()),
            room=RoomRef(surface=self.name, id=room),
            key=key,
            text=text,
        )
        if text.startswith("!"):
            name, _, rest = text[1:].partition(" ")
            incoming = IncomingCommand(account=incoming.account, room=incoming.room, key=key, name=name, arguments=rest)
        await self.deliver(incoming, times=times)

    async def deliver(self, *incoming: Incoming, times: int = 1) -> None:
        assert self._router is not None
        for _ in range(times):
            await self._router.inbound.accept(incoming)

    def account(self, who: str) -> str:
        return who

    def shown(self, room: str) -> list[str]:
        return [message.text for message in self.shown_in[room].values()]

    def fail_next(self, *faults: Fault) -> None:
        self.faults.extend(faults)

    def most_edits(self) -> int:
        return max(message.edits for room in self.shown_in.values() for message in room.values())

    def reconnect(self, router: MessageRouter) -> None:
        self._router = router
        self.faults.clear()
        router.attach(self)

    def _fault(self) -> Fault | None:
        """The fault of this call, before the platform takes the message."""
        fault = self.faults.pop(0) if self.faults else None
        if fault == "patience":
            raise PlatformRateLimited("Too many messages.", 0.01)
        if fault == "hung up":
            raise PlatformUnreachable("The line is down.", ambiguous=False)
        if fault == "refused":
            raise PlatformRefused("Not this.", "It is not tried again.")
        return fault

    async def _after(self, fault: Fault | None) -> None:
        if fault == "taken, then hung up":
            raise PlatformUnreachable("The line broke.")
        if fault == "stuck after taking":
            await asyncio.Event().wait()


def _text(outgoing: Deliverable) -> str:
    if isinstance(outgoing, OutgoingReaction):
        return outgoing.emoji
    if isinstance(outgoing, OutgoingUI):
        return f"{outgoing.text}\n{outgoing.fallback}".strip()
    return outgoing.text
