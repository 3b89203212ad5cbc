"""Answers what the inbox holds: one thing after the other in a room, all rooms at once. P1, P4, D14

Whatever a handler makes of a message is queued in the transaction that marks the message as answered: a crash before it
means that the message is handled again, a crash after it that it is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.eventstore import NewEvent, Store
from coterie.messaging.batching import MessageBatcher, merge_messages
from coterie.messaging.delivery import DeliveryWorker
from coterie.messaging.inbox import Inbox, MessageAnswered, MessagesBatched, ReceivedMessage, SurfaceSynced, room_stream
from coterie.messaging.outbox import message_token, queued_event
from coterie.messaging.ports import Capabilities, Surface
from coterie.messaging.protocol import (
    Account,
    Deliverable,
    Incoming,
    IncomingCommand,
    IncomingMessage,
    Outgoing,
    OutgoingMessage,
    OutgoingNotification,
    OutgoingPart,
    OutgoingTyping,
    RoomRef,
)
from coterie.messaging.room_queue import RoomQueue
from coterie.messaging.routing import MessageDispatcher
from coterie.messaging.settings import SurfacesSettings
from coterie.messaging.streaming import StreamedMessage, split_text

SLOW = "This takes longer than usual. The answer comes as soon as it is there; {mark}stop ends the waiting."
_AT_ONCE = frozenset({"stop"})
"""Commands that are about what is going on: they cannot wait until it is over."""
_TYPING_LASTS_S = 5.0
"""Whoever is still at it after that is shown so again."""
_log = get_logger(__name__)


class PermissionCheck(Protocol):
    """Who may come in. P3"""

    def is_known(self, account: Account) -> bool: ...

    def may_speak_in(self, account: Account, room: RoomRef) -> bool:
        """Whether they may speak in that room."""
        ...

    def refuse(self, incoming: Incoming) -> AsyncIterator[Outgoing]:
        """What a stranger is told."""
        ...


class InboundProcessor:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        dispatcher: MessageDispatcher,
        surfaces: Mapping[str, Surface],
        delivery: DeliveryWorker,
        permissions: PermissionCheck,
        settings: SurfacesSettings,
    ) -> None:
        self.inbox = Inbox(store)
        self.queue = RoomQueue("inbox", self._step)
        self._gathering = MessageBatcher(self.inbox, clock, settings, permissions.may_speak_in)
        self._store = store
        self._clock = clock
        self._dispatcher = dispatcher
        self._surfaces = surfaces
        self._postman = delivery
        self._door = permissions
        self._settings = settings
        self._hurried: set[asyncio.Task[None]] = set()
        self._awaited: dict[int, asyncio.Event] = {}

    async def accept(self, incoming: Sequence[Incoming], cursor: SurfaceSynced | None = None) -> list[int]:
        """Make it durable: only then may the platform forget it. Answers follow in their own time."""
        ids = await self.inbox.accept(incoming, cursor)
        for received, one in zip(ids, incoming, strict=True):
            if isinstance(one, IncomingCommand) and one.name in _AT_ONCE:
                self._hurry(received, one)
            else:
                self.queue.schedule(one.room)
        return ids

    def is_known(self, account: Account) -> bool:
        return self._door.is_known(account)

    async def wait_answered(self, received: int) -> None:
        """Until everything there is to say about it is in the outbox."""
        if self.inbox.state(received) == "waiting":
            await self._awaited.setdefault(received, asyncio.Event()).wait()

    def recover(self) -> None:
        """Go on with what was not answered when the process ended."""
        for room in self.inbox.waiting_rooms():
            self.queue.schedule(room)

    @property
    def busy(self) -> bool:
        return self.queue.is_running or bool(self._hurried)

    async def wait_idle(self) -> None:
        await self.queue.wait_idle()
        await asyncio.gather(*self._hurried)

    async def close(self) -> None:
        await self.queue.close()
        await asyncio.gather(*self._hurried, return_exceptions=True)

    def _hurry(self, received: int, incoming: IncomingCommand) -> None:
        async def handle() -> None:
            if self.inbox.state(received) == "waiting":
                await self._answer([ReceivedMessage(received, incoming, None, self._clock.now())])

        task = asyncio.create_task(handle(), name=f"at once {incoming.name}")
        self._hurried.add(task)
        task.add_done_callback(self._hurried.discard)

    async def _step(self, room: RoomRef) -> bool:
        waiting = self.inbox.waiting(room)
        if not waiting or room.surface not in self._surfaces:
            return False
        batch = await self._gathering.next_batch(room, waiting)
        if batch[0].batch is None and isinstance(batch[0].incoming, IncomingMessage):
            # Settled before it is begun, even for one alone: after a crash the same is answered together, no more.
            together = MessagesBatched(received=tuple(one.id for one in batch))
            await self._store.append([NewEvent(room_stream(room), together)])
        await self._answer(batch)
        return True

    async def _answer(self, batch: Sequence[ReceivedMessage]) -> None:
        incoming = merge_messages(batch)
        surface, token = self._surfaces[incoming.room.surface], message_token(incoming)
        growing_token = f"{token}.s"
        before = self._postman.outbox.shown_message(growing_token)
        growing = StreamedMessage(surface, self._store, self._clock, growing_token, before)
        lasting: list[Deliverable] = []
        typed: float | None = None
        slow = asyncio.create_task(self._tell_if_slow(surface, incoming, token, batch[0].id))
        admitted = self._door.is_known(incoming.account)
        source = self._dispatcher.dispatch(incoming) if admitted else self._door.refuse(incoming)
        try:
            async for said in source:
                outgoing = _in_thread(said, incoming)
                if not isinstance(outgoing, OutgoingTyping):
                    slow.cancel()
                if isinstance(outgoing, OutgoingTyping):
                    if typed is None or self._clock.monotonic() - typed > _TYPING_LASTS_S:
                        typed = self._clock.monotonic()
                        await self._type(surface, outgoing.room, True)
                elif isinstance(outgoing, OutgoingPart):
                    # A message that still waits in the outbox comes first; then this one is told only when it is whole.
                    if surface.capabilities.can_edit and (
                        growing.is_shown or not self._postman.queue.is_busy(incoming.room)
                    ):
                        growing.add(outgoing)
                else:
                    lasting.append(outgoing)
        finally:
            slow.cancel()
            await growing.finish()
            if typed is not None:
                await self._type(surface, incoming.room, False)
        await self._queue(lasting, surface.capabilities, token, batch)

    async def _queue(
        self, lasting: Sequence[Deliverable], abilities: Capabilities, token: str, batch: Sequence[ReceivedMessage]
    ) -> None:
        """Everything it led to, and that it was answered, in one transaction."""
        grown = self._postman.outbox.shown_message(f"{token}.s") is not None
        drafts: list[NewEvent] = []
        for outgoing in lasting:
            for part in _parts(outgoing, abilities):
                its_token = f"{token}.{len(drafts)}"
                if grown and isinstance(part, OutgoingMessage):
                    part, its_token, grown = part.model_copy(update={"streamed": True}), f"{token}.s", False
                drafts.append(queued_event(its_token, part, batch[0].id))
        answered = MessageAnswered(received=tuple(one.id for one in batch))
        room = batch[0].incoming.room
        await self._store.append([*drafts, NewEvent(room_stream(room), answered, key=f"answered:{batch[0].id}")])
        for one in batch:
            if (awaited := self._awaited.pop(one.id, None)) is not None:
                awaited.set()
        for draft_room in {outgoing.room for outgoing in lasting}:
            self._postman.queue.schedule(draft_room)

    async def _type(self, surface: Surface, room: RoomRef, on: bool) -> None:
        with suppress(CoterieError):  # nobody is told that they were not told of typing
            await surface.typing(room, on)

    async def _tell_if_slow(self, surface: Surface, incoming: Incoming, token: str, received: int) -> None:
        if not self._settings.slow_notice_s:
            return
        await asyncio.sleep(self._settings.slow_notice_s)
        notice = OutgoingNotification(room=incoming.room, text=SLOW.format(mark=surface.capabilities.command_prefix))
        await self._store.append([queued_event(f"{token}.slow", notice, received)])
        self._postman.queue.schedule(incoming.room)


def _in_thread(outgoing: Outgoing, incoming: Incoming) -> Outgoing:
    """What answers something stands where that stood."""
    if incoming.thread is None or outgoing.thread is not None or outgoing.room != incoming.room:
        return outgoing
    return outgoing.model_copy(update={"thread": incoming.thread})


def _parts(outgoing: Deliverable, abilities: Capabilities) -> list[Deliverable]:
    """A message as the platform can take it. Files come with the last part, a reference with the first."""
    if not isinstance(outgoing, OutgoingMessage):
        return [outgoing]
    texts = split_text(outgoing.text, abilities.max_length, abilities.length_of)
    last = len(texts) - 1
    return [
        outgoing.model_copy(
            update={
                "text": text,
                "attachments": outgoing.attachments if number == last else (),
                "reply_to": outgoing.reply_to if number == 0 else None,
            }
        )
        for number, text in enumerate(texts)
    ]
