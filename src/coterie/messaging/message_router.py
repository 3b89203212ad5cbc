"""The way of a message: accepted into the inbox, batched, dispatched to its handler, answered into the outbox.

`MessageRouter` is what `app.py` hands to every surface. A surface attaches itself, passes incoming events to
`InboundProcessor.accept`, and gets what it shows from the `DeliveryWorker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.supervisor import SupervisedTask, Supervisor, run_once
from coterie.characters import Characters, People
from coterie.eventstore import NewEvent, Projection, Store
from coterie.messaging.agents import AgentRegistry
from coterie.messaging.commands import Commands, PendingQuestionsProjection
from coterie.messaging.delivery import DeliveryWorker, OutboxProjection, RoomQueue, message_token, queued_event
from coterie.messaging.inbox import (
    Inbox,
    InboxProjection,
    MessageAnswered,
    MessageBatcher,
    MessagesBatched,
    ReceivedMessage,
    SurfaceSynced,
    merge_messages,
    room_stream,
)
from coterie.messaging.permissions import Permissions
from coterie.messaging.ports import Capabilities, Conversation, Surface
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
    OutgoingReaction,
    OutgoingTyping,
    RoomRef,
)
from coterie.messaging.quarantine import InputSkipped, SkippedInputsProjection
from coterie.messaging.rooms import RoomsProjection
from coterie.messaging.routing import ChatRouter, MessageDispatcher
from coterie.messaging.settings import SurfacesSettings
from coterie.messaging.streaming import StreamedMessage, fit_to_platform

SLOW = "This takes longer than usual. The answer comes as soon as it is there; {prefix}stop ends the waiting."
SLOW_REACTION = "👀"
_UNKNOWN_PLATFORM = Capabilities(max_length=2_000, buttons=True, reactions=True)
"""For messages to a surface that is not attached: every platform takes parts of this length."""
_IMMEDIATE_COMMANDS = frozenset({"stop"})
"""Commands about the running reply: they cannot wait for it to end."""
_MAX_TYPING_S = 600.0
"""The typing notice ends after this long, even if the answer is still being written."""


def messaging_projections() -> list[Projection]:
    return [
        InboxProjection(),
        OutboxProjection(),
        RoomsProjection(),
        PendingQuestionsProjection(),
        SkippedInputsProjection(),
    ]


class MessageRouter:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        characters: Characters,
        people: People,
        conversations: dict[str, Conversation],
        settings: SurfacesSettings,
        agents: AgentRegistry | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        supervisor = supervisor or Supervisor(clock)
        self.surfaces: dict[str, Surface] = {}
        self.dispatcher = MessageDispatcher()
        self.people = people
        self.chats = ChatRouter(store, characters, people, conversations, settings, agents)
        self.delivery = DeliveryWorker(store, clock, self.surfaces, supervisor=supervisor)
        permissions = Permissions(people, clock, settings, self.surfaces)
        self.inbound = InboundProcessor(
            store, clock, self.dispatcher, self.surfaces, self.chats, self.delivery, permissions, settings, supervisor
        )
        self._store = store
        Commands(store, self.chats, self.surfaces, settings).register(self.dispatcher)

    def attach(self, surface: Surface) -> None:
        """Use this surface from now on, starting with the work that waits for it."""
        self.surfaces[surface.name] = surface
        self.inbound.recover()
        self.delivery.recover()

    def detach(self, surface: Surface) -> None:
        """Its messages wait until it is attached again."""
        self.surfaces.pop(surface.name, None)

    async def notify(self, outgoing: Deliverable, token: str) -> None:
        """Send a message that answers nothing, such as a finished task. The same token again sends it once."""
        surface = self.surfaces.get(outgoing.room.surface)
        parts = fit_to_platform(outgoing, surface.capabilities if surface is not None else _UNKNOWN_PLATFORM)
        events = [queued_event(f"{token}.{n}" if n else token, part) for n, part in enumerate(parts)]
        if events:
            await self._store.append(events)
            self.delivery.queue.schedule(outgoing.room)

    async def wait_idle(self) -> None:
        """Wait until every message is answered and delivered."""
        while self.inbound.is_busy or self.delivery.queue.is_running:
            await self.inbound.wait_idle()
            await self.delivery.queue.wait_idle()

    async def close(self) -> None:
        await self.inbound.close()
        await self.delivery.queue.close()


class InboundProcessor:
    """Answers what is in the inbox: in order within a room, all rooms concurrently.

    The answers are queued in the transaction that marks the message as answered: after a crash before it the message is
    handled again, after it not.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        dispatcher: MessageDispatcher,
        surfaces: Mapping[str, Surface],
        chats: ChatRouter,
        delivery: DeliveryWorker,
        permissions: Permissions,
        settings: SurfacesSettings,
        supervisor: Supervisor,
    ) -> None:
        self.inbox = Inbox(store)
        self.queue = RoomQueue("incoming messages", self._step, supervisor)
        self._supervisor = supervisor
        self._batcher = MessageBatcher(self.inbox, clock, settings, chats.may_speak_in)
        self._chats = chats
        self._store = store
        self._clock = clock
        self._dispatcher = dispatcher
        self._surfaces = surfaces
        self._delivery = delivery
        self._permissions = permissions
        self._settings = settings
        self._immediate: set[SupervisedTask] = set()
        self._waiters: dict[int, asyncio.Event] = {}

    async def accept(
        self,
        incoming: Sequence[Incoming],
        cursor: SurfaceSynced | None = None,
        skipped: Sequence[InputSkipped] = (),
    ) -> list[int]:
        """Make incoming events durable, after which the platform may forget them; they are answered later.

        In a group, messages that do not address the character are not stored. Returns the id of each event, new or
        received before; 0 for one that was not stored.
        """
        wanted = [event for event in incoming if self._chats.is_for_character(event)]
        ids = await self.inbox.accept(wanted, cursor, skipped)
        for received_id, event in zip(ids, wanted, strict=True):
            if isinstance(event, IncomingCommand) and event.name in _IMMEDIATE_COMMANDS:
                self._answer_immediately(received_id, event)
            else:
                self.queue.schedule(event.room)
        return [self.inbox.find(event) or 0 for event in incoming] if len(wanted) < len(incoming) else ids

    async def wait_answered(self, received_id: int) -> None:
        """Wait until every answer to it is in the outbox."""
        if self.inbox.state(received_id) == "waiting":
            await self._waiters.setdefault(received_id, asyncio.Event()).wait()

    def is_known(self, account: Account) -> bool:
        return self._permissions.is_known(account)

    def recover(self) -> None:
        """Continue with messages that were unanswered when the process ended."""
        for room in self.inbox.waiting_rooms():
            self.queue.schedule(room)

    @property
    def is_busy(self) -> bool:
        return self.queue.is_running or bool(self._immediate)

    async def wait_idle(self) -> None:
        await self.queue.wait_idle()
        await asyncio.gather(*(task.wait() for task in self._immediate))

    async def close(self) -> None:
        await self.queue.close()
        await asyncio.gather(*(task.finish() for task in self._immediate))

    def _answer_immediately(self, received_id: int, incoming: IncomingCommand) -> None:
        async def answer() -> None:
            if self.inbox.state(received_id) == "waiting":
                await self._answer([ReceivedMessage(received_id, incoming, None, self._clock.now())])

        name = f"command: {incoming.name} {received_id}"
        if any(task.name == name for task in self._immediate):  # received again while it is answered
            return
        task = self._supervisor.start(name, answer)
        self._immediate.add(task)
        task.on_end(lambda: self._immediate.discard(task))

    async def _step(self, room: RoomRef) -> bool:
        waiting = self.inbox.waiting(room)
        if not waiting or room.surface not in self._surfaces:
            return False
        batch = await self._batcher.next_batch(room, waiting)
        if batch[0].batch is None and isinstance(batch[0].incoming, IncomingMessage):
            # Recorded before the answer starts, even for a single message: after a crash the same batch is answered.
            batched = MessagesBatched(received=tuple(message.id for message in batch))
            await self._store.append([NewEvent(room_stream(room), batched)])
        await self._answer(batch)
        return True

    async def _answer(self, batch: Sequence[ReceivedMessage]) -> None:
        """Handle a batch as one message: stream and type while the handler runs, then queue what is to be delivered."""
        incoming, last = merge_messages(batch), batch[-1].incoming
        reply_to = last.key if last.group and isinstance(last, IncomingMessage) else None
        surface, token = self._surfaces[incoming.room.surface], message_token(incoming)
        stream_token = f"{token}.s"
        shown_before = self._delivery.outbox.shown_message(stream_token)
        streamed = StreamedMessage(surface, self._store, self._clock, stream_token, shown_before)
        deliverables: list[Deliverable] = []
        typing: asyncio.Task[None] | None = None
        slow_notice = run_once("notice of a slow answer", self._notify_if_slow(surface, incoming, token, batch[0].id))
        is_known = self._permissions.is_known(incoming.account)
        answers = self._dispatcher.dispatch(incoming) if is_known else self._permissions.refuse(incoming)
        try:
            async for answer in answers:
                outgoing = _as_answer(answer, incoming, reply_to)
                if isinstance(outgoing, OutgoingTyping):
                    if typing is None:
                        await self._set_typing(surface, outgoing.room, True)
                        typing = run_once("typing notice", self._keep_typing(surface, outgoing.room))
                    continue
                slow_notice.cancel()
                if not isinstance(outgoing, OutgoingPart):
                    deliverables.append(outgoing)
                elif (surface.capabilities.can_edit or surface.capabilities.previews) and (
                    streamed.is_shown or not self._delivery.queue.is_busy(incoming.room)
                ):
                    # Not while an earlier message waits for delivery: then this one is sent only when complete.
                    streamed.add(outgoing)
        finally:
            slow_notice.cancel()
            await streamed.finish()
            if typing is not None:
                typing.cancel()
                await self._set_typing(surface, incoming.room, False)
        await self._queue_answers(deliverables, surface.capabilities, token, batch)

    async def _queue_answers(
        self,
        deliverables: Sequence[Deliverable],
        capabilities: Capabilities,
        token: str,
        batch: Sequence[ReceivedMessage],
    ) -> None:
        """Record all answers and that the batch is answered, in one transaction."""
        stream_token = f"{token}.s"
        is_streamed = self._delivery.outbox.shown_message(stream_token) is not None
        events: list[NewEvent] = []
        for outgoing in deliverables:
            for part in fit_to_platform(outgoing, capabilities):
                part_token = f"{token}.{len(events)}"
                if is_streamed and isinstance(part, OutgoingMessage):
                    part, part_token, is_streamed = part.model_copy(update={"streamed": True}), stream_token, False
                events.append(queued_event(part_token, part, batch[0].id))
        answered = MessageAnswered(received=tuple(message.id for message in batch))
        room = batch[0].incoming.room
        await self._store.append([*events, NewEvent(room_stream(room), answered, key=f"answered:{batch[0].id}")])
        for message in batch:
            if (waiter := self._waiters.pop(message.id, None)) is not None:
                waiter.set()
        for outgoing_room in {outgoing.room for outgoing in deliverables}:
            self._delivery.queue.schedule(outgoing_room)

    async def _keep_typing(self, surface: Surface, room: RoomRef) -> None:
        """Show again and again that an answer is being written, until cancelled."""
        repeat_s = surface.capabilities.typing_repeat_s
        for _ in range(int(_MAX_TYPING_S / repeat_s)):
            await asyncio.sleep(repeat_s)
            await self._set_typing(surface, room, True)

    async def _set_typing(self, surface: Surface, room: RoomRef, on: bool) -> None:
        with suppress(CoterieError):  # typing notices are best effort
            await surface.typing(room, on)

    async def _notify_if_slow(self, surface: Surface, incoming: Incoming, token: str, received_id: int) -> None:
        if not self._settings.slow_notice_s:
            return
        await asyncio.sleep(self._settings.slow_notice_s)
        notice: Deliverable = OutgoingReaction(room=incoming.room, to=incoming.key, emoji=SLOW_REACTION)
        if not (incoming.group and surface.capabilities.reactions and isinstance(incoming, IncomingMessage)):
            text = SLOW.format(prefix=surface.capabilities.command_prefix)
            notice = OutgoingNotification(room=incoming.room, thread=incoming.thread, text=text)
        await self._store.append([queued_event(f"{token}.slow", notice, received_id)])
        self._delivery.queue.schedule(incoming.room)


def _as_answer(outgoing: Outgoing, incoming: Incoming, reply_to: str | None) -> Outgoing:
    """The answer in the thread of the message it answers, and in a group as a reply to it."""
    if outgoing.room != incoming.room:
        return outgoing
    changes: dict[str, str] = {}
    if incoming.thread is not None and outgoing.thread is None:
        changes["thread"] = incoming.thread
    if reply_to is not None and isinstance(outgoing, OutgoingMessage | OutgoingPart) and outgoing.reply_to is None:
        changes["reply_to"] = reply_to
    return outgoing.model_copy(update=changes) if changes else outgoing
