"""An in-memory platform with the faults of real ones: repeated deliveries, rate limits, broken connections.

`Platform` is what the contract suite works with; adapters of real platforms bring their own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, Protocol

from coterie.messaging.errors import PlatformRateLimited, PlatformRefused, PlatformUnreachable
from coterie.messaging.files import RoomFiles
from coterie.messaging.message_router import MessageRouter
from coterie.messaging.ports import Capabilities, EditPace, Surface
from coterie.messaging.protocol import (
    Account,
    Button,
    Deliverable,
    Incoming,
    IncomingCallback,
    IncomingCommand,
    IncomingMessage,
    MemberChange,
    OutgoingMessage,
    OutgoingReaction,
    OutgoingUI,
    RoomRef,
    RoomTitleChange,
)

Fault = Literal["patience", "hung up", "taken, then hung up", "refused", "stuck after taking"]


@dataclass
class ShownMessage:
    """A message of ours as a user sees it now."""

    id: str
    text: str
    reply_to: str | None = None
    thread: str | None = None
    buttons: tuple[str, ...] = ()
    files: list[tuple[str, bytes]] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)
    edits: int = 0


Feature = Literal["groups", "threads", "replies", "files", "renames"]


class Platform(Protocol):
    surface: Surface
    features: frozenset[Feature]
    """What users of the platform can do; `surface.capabilities` says what we can."""

    async def say(
        self,
        who: str,
        room: str,
        text: str,
        key: str,
        *,
        times: int = 1,
        reply_to: str | None = None,
        thread: str | None = None,
        mention: bool = False,
    ) -> str:
        """Write as a user; the platform delivers the message `times` times. Returns the platform's id of it. A room has
        those who wrote in it."""
        ...

    async def press(self, who: str, room: str, label: str) -> None:
        """Press the newest button with this label."""
        ...

    async def send_file(self, who: str, room: str, name: str, data: bytes) -> None: ...

    async def join(self, who: str, room: str) -> None: ...

    async def leave(self, who: str, room: str) -> None: ...

    async def rename(self, who: str, room: str, title: str) -> None: ...

    def room_ref(self, room: str) -> RoomRef: ...

    def notice_thread(self, room: str) -> str | None:
        """The thread of messages that answer nothing, for the webhook: its callback."""
        ...

    def is_in(self, room: str) -> bool:
        """Whether we are in the room."""
        ...

    def messages(self, room: str) -> list[ShownMessage]:
        """Our messages in a room, oldest first."""
        ...

    def refuse_edits(self) -> None:
        """From now on messages cannot be edited."""
        ...

    def account(self, who: str) -> str:
        """The platform's account id of a user."""
        ...

    def shown(self, room: str) -> list[str]:
        """The texts of our messages in a room, oldest first."""
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
class Loopback:
    dedupes: bool = True
    name: str = "loopback"
    features: frozenset[Feature] = frozenset({"groups", "threads", "replies", "files", "renames"})
    buttons: bool = True
    previews: bool = False
    files: Callable[[RoomRef], RoomFiles] | None = None
    shown_in: dict[str, dict[str, ShownMessage]] = field(default_factory=lambda: defaultdict(dict))
    faults: list[Fault] = field(default_factory=list)
    typing_in: list[tuple[str, bool]] = field(default_factory=list)
    reactions: list[tuple[str, str]] = field(default_factory=list)
    """The message and the emoji of every reaction of ours."""
    taken: Callable[[str], None] = lambda _: None
    """Called with each token as it arrives."""

    def __post_init__(self) -> None:
        self.capabilities = Capabilities(
            max_length=4_000,
            deduplicates=self.dedupes,
            can_edit=not self.previews,
            previews=self.previews,
            buttons=self.buttons,
            reactions=True,
            max_file_bytes=1_000_000,
            pace=EditPace(min_interval_s=0.001, max_interval_s=0.004, idle_s=0.002),
            command_prefix="!",
            can_create_rooms=True,
        )
        self.surface: Surface = self
        self._router: MessageRouter | None = None
        self._made: dict[str, RoomRef] = {}
        self.created_from: dict[str, RoomRef] = {}
        self._members: dict[str, set[str]] = defaultdict(set)
        self._left: set[str] = set()
        self._edits_refused = False
        self._ui: dict[str, tuple[Button, ...]] = {}
        self._keys = count()
        self.previewed: list[str] = []

    # --- the adapter -------------------------------------------------------------------------------------------

    async def send(self, outgoing: Deliverable, token: str) -> str:
        fault = self._fault()
        room = self.shown_in[outgoing.room.id]
        if isinstance(outgoing, OutgoingReaction):
            if (target := room.get(outgoing.to)) is not None:
                target.reactions.append(outgoing.emoji)
            self.reactions.append((outgoing.to, outgoing.emoji))
            return token
        message_id = token if self.dedupes else f"{token}#{len(room)}"
        if message_id not in room:
            room[message_id] = await self._shown(message_id, outgoing)
        self.taken(token)
        await self._after(fault)
        return message_id

    async def edit(self, outgoing: Deliverable, message: str, token: str) -> None:
        fault = self._fault()
        if self._edits_refused:
            raise PlatformRefused("This message is too old to be edited.", "Nothing can be done.")
        shown = self.shown_in[outgoing.room.id][message]
        shown.text, shown.edits = outgoing.text if not isinstance(outgoing, OutgoingReaction) else "", shown.edits + 1
        await self._after(fault)

    async def preview(self, outgoing: OutgoingMessage, token: str) -> None:
        self._fault()
        self.previewed.append(outgoing.text)

    async def typing(self, room: RoomRef, on: bool) -> None:
        self.typing_in.append((room.id, on))

    async def create_room(self, person: Account, title: str, key: str, asked_in: RoomRef) -> RoomRef:
        self.created_from[key] = asked_in
        return self._made.setdefault(key, RoomRef(surface=self.name, id=f"made-{len(self._made)}-{title}"))

    async def is_private(self, room: RoomRef, account: Account) -> bool:
        return self._members[room.id] <= {account.id}

    async def rename_room(self, room: RoomRef, title: str) -> None:
        """Rooms have no names here."""

    async def leave_room(self, room: RoomRef) -> None:
        self._left.add(room.id)

    async def direct_room(self, person: Account) -> RoomRef | None:
        return RoomRef(surface=self.name, id=f"direct-{person.id}")

    async def _shown(self, message_id: str, outgoing: Deliverable) -> ShownMessage:
        assert not isinstance(outgoing, OutgoingReaction)
        shown = ShownMessage(message_id, outgoing.text, thread=outgoing.thread)
        if isinstance(outgoing, OutgoingUI):
            shown.buttons = tuple(button.label for button in outgoing.buttons)
            self._ui[message_id] = outgoing.buttons
        elif isinstance(outgoing, OutgoingMessage):
            shown.reply_to = outgoing.reply_to
            files = self.files(outgoing.room) if self.files is not None else None
            for file in outgoing.attachments if files is not None else ():
                assert files is not None
                data = b"".join([chunk async for chunk in files.read(file, outgoing.room)])
                shown.files.append((file.name, data))
        return shown

    # --- the platform ------------------------------------------------------------------------------------------

    async def say(
        self,
        who: str,
        room: str,
        text: str,
        key: str,
        *,
        times: int = 1,
        reply_to: str | None = None,
        thread: str | None = None,
        mention: bool = False,
    ) -> str:
        fields = {**self._fields(who, room, key), "thread": thread}
        incoming: Incoming
        if text.startswith("!"):
            name, _, rest = text[1:].partition(" ")
            incoming = IncomingCommand(**fields, name=name, arguments=rest)
        else:
            incoming = IncomingMessage(**{**fields, "addressed": mention}, text=text, reply_to=reply_to)
        await self.deliver(incoming, times=times)
        return key

    async def press(self, who: str, room: str, label: str) -> None:
        shown = next(message for message in reversed(self.messages(room)) if label in message.buttons)
        button = next(button for button in self._ui[shown.id] if button.label == label)
        fields = self._fields(who, room)
        await self.deliver(IncomingCallback(**fields, action=button.action, payload=button.payload))

    async def send_file(self, who: str, room: str, name: str, data: bytes) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            yield data

        assert self.files is not None
        saved = await self.files(self.room_ref(room)).save(self.room_ref(room), name, chunks())
        await self.deliver(IncomingMessage(**self._fields(who, room), text="", attachments=(saved,)))

    async def join(self, who: str, room: str) -> None:
        await self.deliver(MemberChange(**self._fields(who, room), change="joined"))

    async def leave(self, who: str, room: str) -> None:
        fields = self._fields(who, room)
        self._members[room].discard(who)
        await self.deliver(MemberChange(**fields, change="left"))

    async def rename(self, who: str, room: str, title: str) -> None:
        await self.deliver(RoomTitleChange(**self._fields(who, room), title=title))

    def _fields(self, who: str, room: str, key: str = "") -> dict[str, Any]:
        self._members[room].add(who)
        return {
            "account": Account(surface=self.name, id=who, name=who.title()),
            "room": self.room_ref(room),
            "key": key or f"event-{next(self._keys)}",
            "group": len(self._members[room]) > 1,
        }

    def room_ref(self, room: str) -> RoomRef:
        return RoomRef(surface=self.name, id=room)

    def notice_thread(self, room: str) -> str | None:
        return None

    def is_in(self, room: str) -> bool:
        return room not in self._left

    def messages(self, room: str) -> list[ShownMessage]:
        return list(self.shown_in[room].values())

    def refuse_edits(self) -> None:
        self._edits_refused = True

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
