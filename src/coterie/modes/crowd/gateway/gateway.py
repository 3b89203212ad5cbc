"""Stores posts in batches, then broadcasts them to readers.

A message is durable before it is shown. While one batch is committed the next one collects, so a quiet room answers at
once and a busy one shares commits. Every refusal has an audit record.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from coterie.base.clock import Clock
from coterie.base.logging import get_logger
from coterie.base.supervisor import describe, run_once
from coterie.eventstore import Bus, BusMessage, NewEvent, Payload, Store
from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.events import CrowdAudited, CrowdGoverned, CrowdRuled, CrowdSaid, room_stream
from coterie.modes.crowd.gateway.admission import Admission, Admitted, ChatIdentity, RoomLimits
from coterie.modes.crowd.protocol import AuditRecord, ChatAuthor, ChatMessage, ChatPost, SenderPost, Subjects

_log = get_logger(__name__)
TICK_S = 0.05
MAX_OUTSTANDING_BYTES = 256 * 1024
"""Bytes a socket may have outstanding before its reader counts as slow."""
_SNAPSHOT_SIZE = 100
_MAX_RECENT = 5_000
"""Messages kept in memory; older ones are read from the log."""
_PAGE_SIZE = 1_000
MAX_WAITING_POSTS = 20_000
"""Posts that may wait for the log. Further ones are refused, so that a slow disk does not fill the memory."""
_Waiting = tuple[ChatMessage | None, asyncio.Future[Any]]
_AUDIT_ACTIONS = {
    "timeout": "timeout",
    "ban": "ban",
    "pardon": "pardon",
    "kill": "killed",
    "revive": "revived",
    "delete": "deleted",
}
DELETED_TEXT = "[deleted by a moderator]"


class Frame(NamedTuple):
    """The messages of one tick, encoded once for all readers."""

    text: bytes
    """JSON."""
    websocket: bytes
    """The JSON with its WebSocket header; server frames are unmasked and identical for all readers."""


Write = Callable[[bytes], None]
Encoding = Literal["text", "websocket"]


class Socket(Protocol):
    """One reader. Calls `Fanout.pause` above `MAX_OUTSTANDING_BYTES` unsent bytes and `resume` once all are sent."""

    @property
    def encoding(self) -> Encoding:
        """The frame encoding it wants."""
        ...

    @property
    def write(self) -> Write:
        """Send bytes without blocking."""
        ...


class Fanout:
    """Sends messages to all readers in ticks: one frame per tick, one write per reader.

    A slow reader is skipped until its buffer is empty, and then continues with a snapshot.
    """

    def __init__(self, snapshot: Callable[[int], Sequence[ChatMessage]], last_sent: int = 0) -> None:
        """`snapshot` returns the newest messages of the room; `last_sent` is the number of its last message."""
        self._snapshot = snapshot
        self._active: dict[Encoding, dict[Socket, Write]] = {"text": {}, "websocket": {}}
        self._paused: set[Socket] = set()
        self._resuming: set[Socket] = set()
        """Get a snapshot with the next tick."""
        self._pending: list[ChatMessage] = []
        self._timer: asyncio.TimerHandle | None = None
        self.last_sent = last_sent
        """The number of the last message sent. Newer ones are pending and in no snapshot."""
        self._cached_snapshot: tuple[tuple[int, int], Frame] | None = None
        self.frames = 0
        self.dropped = 0

    def join(self, socket: Socket, missed: Sequence[ChatMessage] | None = None) -> None:
        """Add a reader: a new one gets a snapshot, a returning one what it `missed`.

        What is pending reaches a new reader with the next tick, so that many joins cause no frames for the others. A
        returning one may know some of it already, so it is sent before.
        """
        if missed is None:
            first = self._snapshot_frame()
        else:
            self.flush()
            known = missed[-1].number if missed else 0
            since = [message for message in self._snapshot(_SNAPSHOT_SIZE) if known and message.number > known]
            first = encode_frame(
                "messages", [message for message in (*missed, *since) if message.number <= self.last_sent]
            )
        self._activate(socket)
        socket.write(getattr(first, socket.encoding))

    def leave(self, socket: Socket) -> None:
        self._active[socket.encoding].pop(socket, None)
        self._paused.discard(socket)
        self._resuming.discard(socket)

    def pause(self, socket: Socket) -> None:
        """Skip a slow reader until it resumes."""
        if self._active[socket.encoding].pop(socket, None) is not None or socket in self._resuming:
            self._resuming.discard(socket)
            self._paused.add(socket)

    def resume(self, socket: Socket) -> None:
        """Include a reader again, starting with a snapshot at the next tick."""
        if socket in self._paused:
            self._paused.discard(socket)
            self._resuming.add(socket)

    @property
    def readers(self) -> int:
        return sum(map(len, self._active.values())) + len(self._paused) + len(self._resuming)

    def send(self, messages: Sequence[ChatMessage]) -> None:
        """Send these messages with the next tick."""
        self._pending.extend(messages)
        if self._timer is None and self._pending:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        frame = encode_frame("messages", self._pending)
        self.last_sent = self._pending[-1].number
        self._pending = []
        self.dropped += len(self._paused)
        resuming, self._resuming = self._resuming, set()
        for encoding, active in self._active.items():
            data: bytes = getattr(frame, encoding)
            writes = list(active.values())  # a reader paused by its write leaves the dict
            for write in writes:
                try:
                    write(data)
                except Exception:
                    self._remove_failed(encoding, write)
            self.frames += len(writes)
        if resuming:
            snapshot = self._snapshot_frame()
            for socket in resuming:
                self._activate(socket)
                socket.write(getattr(snapshot, socket.encoding))
            self.frames += len(resuming)

    def _remove_failed(self, encoding: Encoding, write: Write) -> None:
        """A reader that cannot be written to is removed; the others get their frame."""
        _log.exception("crowd reader removed")
        active = self._active[encoding]
        for socket in [socket for socket, other in active.items() if other == write]:
            self.leave(socket)

    def _activate(self, socket: Socket) -> None:
        self._active[socket.encoding][socket] = socket.write

    def _snapshot_frame(self) -> Frame:
        """The snapshot, encoded once for all readers that join between two ticks."""
        messages = [message for message in self._snapshot(_SNAPSHOT_SIZE) if message.number <= self.last_sent]
        key = (len(messages), messages[-1].number if messages else 0)
        if self._cached_snapshot is None or self._cached_snapshot[0] != key:
            self._cached_snapshot = (key, encode_frame("snapshot", messages))
        return self._cached_snapshot[1]


def encode_frame(kind: str, messages: Sequence[ChatMessage]) -> Frame:
    """Encode messages as a frame of this kind."""
    text = f'{{"type":"{kind}","messages":[{",".join([message.to_json() for message in messages])}]}}'.encode()
    return Frame(text, _websocket_header(len(text)) + text)


def _websocket_header(length: int) -> bytes:
    """The header of an unfragmented, unmasked text frame (RFC 6455, 5.2)."""
    if length < 126:
        return bytes([0x81, length])
    return struct.pack("!BBH", 0x81, 126, length) if length < 65_536 else struct.pack("!BBQ", 0x81, 127, length)


class Gateway:
    """Admits, stores and publishes the messages of one room."""

    def __init__(self, store: Store, admission: Admission, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.admission = admission
        self.stream = room_stream(admission.room)
        self._subjects = Subjects(admission.room)
        self._recent: deque[ChatMessage] = deque(maxlen=_MAX_RECENT)
        self._new_events: list[NewEvent] = []
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._deleted: set[str] = set()
        self.failed_writes = 0
        self.problem = ""
        """Why the last batch was not stored; empty if it was."""
        self.overflows = 0
        """Posts refused because too many were waiting."""

    async def recover(self) -> None:
        """Restore numbers, senders' ids and rulings from the log."""
        stored = await self._store.read(self.stream, kinds=["crowd_said"], limit=_MAX_RECENT, newest_first=True)
        for event in reversed(stored):
            if isinstance(event.payload, CrowdSaid):
                self.admission.remember(event.payload.message)
                self._recent.append(event.payload.message)
        for event in await self._store.read(self.stream, kinds=["crowd_ruled", "crowd_governed"], limit=100_000):
            if isinstance(event.payload, CrowdRuled):
                self.admission.add_moderator(event.payload.by)
                self.admission.moderation_state.apply(event.payload)
                self._hide_deleted(event.payload)
            elif isinstance(event.payload, CrowdGoverned) and event.payload.changed:
                limits = RoomLimits.model_validate(event.payload.rules.get("limits", {}))
                self.admission.moderation_state.apply_limits(limits, event.payload.changed)

    def post_from(self, identity: ChatIdentity, sent: SenderPost) -> asyncio.Future[ChatMessage]:
        """Post what a person sent, under the name that the receiver of the connection has established."""
        if identity.role not in ("owner", "guest"):
            refused: asyncio.Future[ChatMessage] = asyncio.get_running_loop().create_future()
            refused.set_exception(
                MessageRefused("identity", "This token is not one of a person.", "Use a token of coterie crowd invite.")
            )
            return refused
        post = ChatPost(
            id=sent.id,
            room=sent.room,
            author=ChatAuthor(name=identity.name, kind="human"),
            text=sent.text,
            reply_to=sent.reply_to,
        )
        return self.post(post, guest=identity.role != "owner")

    def post(self, post: ChatPost, *, guest: bool = False, relayed: bool = False) -> asyncio.Future[ChatMessage]:
        """Return a future of the stored message; it raises `MessageRefused` if the post is not admitted.

        The caller vouches for the author. What people send goes through `post_from`. `relayed` is whether another
        platform limits how often its people post.
        """
        answer: asyncio.Future[ChatMessage] = asyncio.get_running_loop().create_future()
        if len(self._waiting) >= MAX_WAITING_POSTS:
            self.overflows += 1
            answer.set_exception(
                MessageRefused("busy", "The room has more messages than it can store.", "Try again in a moment.", 2.0)
            )
            return answer
        decision = self.admission.admit(post, self.now_ms(), guest=guest, relayed=relayed)
        if decision.audits:
            self._new_events.extend(
                NewEvent(self.stream, CrowdAudited(record=audit), "gateway") for audit in decision.audits
            )
        if isinstance(decision, Admitted):
            if not decision.duplicate:
                self._new_events.append(NewEvent(self.stream, CrowdSaid(message=decision.message), post.author.name))
            self._waiting.append((decision.message, answer))
        else:
            answer.set_exception(decision.error)
        self._start_writing()
        return answer

    def audit_stranger(self, rule: str, reason: str) -> None:
        """Record the refusal of a post whose sender is not known."""
        stranger = ChatAuthor(name="unknown sender", kind="human")
        for record in self.admission.audit_refusal(rule, reason, stranger, None, self.now_ms()):
            self.record(CrowdAudited(record=record), "gateway")

    def record(self, payload: Payload, actor: str = "crowd") -> None:
        """Store another event of the room, in order with the messages, as a replay requires."""
        self._new_events.append(NewEvent(self.stream, payload, actor))
        self._start_writing()

    async def moderate(self, ruling: CrowdRuled) -> None:
        """Apply a moderator's decision at once, with an audit record."""
        self.admission.add_moderator(ruling.by)
        self.admission.moderation_state.apply(ruling)
        self._hide_deleted(ruling)
        record = AuditRecord(
            room=self.admission.room,
            ts=ruling.at_ms,
            action=_AUDIT_ACTIONS.get(ruling.what, "setting"),
            rule=ruling.what,
            reason=ruling.reason or f"{ruling.what} by {ruling.by}",
            author=ChatAuthor(name=ruling.who or "room", kind="human" if ruling.who else "system"),
            message=ruling.message or None,
            by=ruling.by,
        )
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._new_events += [
            NewEvent(self.stream, ruling, ruling.by),
            NewEvent(self.stream, CrowdAudited(record=record), ruling.by),
        ]
        self._waiting.append((None, stored))
        self._start_writing()
        await stored

    def _hide_deleted(self, ruling: CrowdRuled) -> None:
        if ruling.what == "delete" and ruling.message:
            self._deleted.add(ruling.message)
            self._recent = deque(map(self._shown, self._recent), maxlen=_MAX_RECENT)

    def _shown(self, message: ChatMessage) -> ChatMessage:
        """A message as readers see it: the log keeps what was deleted, and readers do not get it."""
        if message.id not in self._deleted:
            return message
        return message.model_copy(update={"text": DELETED_TEXT, "mentions": (), "emotes": ()})

    async def flush(self) -> None:
        """Wait until everything posted so far is durable."""
        while self._writing is not None:
            await self._writing

    @property
    def waiting(self) -> int:
        """Posts that are not durable yet."""
        return len(self._waiting)

    async def recent_events(self, kinds: Sequence[str], limit: int) -> list[Payload]:
        """The newest events of these kinds in the room's log, oldest first."""
        events = await self._store.read(self.stream, kinds=list(kinds), limit=limit, newest_first=True)
        return [event.payload for event in reversed(events)]

    def latest(self, count: int) -> list[ChatMessage]:
        """Return the newest messages, oldest first."""
        return list(self._recent)[-count:]

    async def after(self, number: int, limit: int | None = None) -> list[ChatMessage]:
        """Return the messages after a number, oldest first; from the log if they are no longer in memory."""
        if not self._recent or self._recent[0].number <= number + 1:
            return [message for message in self._recent if message.number > number][:limit]
        messages: list[ChatMessage] = []
        seq = await self._place_before(number)
        while limit is None or len(messages) < limit:
            page = await self._store.read(self.stream, after=seq, limit=_PAGE_SIZE, kinds=["crowd_said"])
            if not page:
                break
            found = [event.payload.message for event in page if isinstance(event.payload, CrowdSaid)]
            messages.extend(self._shown(message) for message in found if message.number > number)
            seq = page[-1].seq
        return messages[:limit]

    async def _place_before(self, number: int) -> int:
        """A place in the log before the first message after a number, by bisection."""
        low, high = 0, await self._store.head(self.stream)
        while high - low > _PAGE_SIZE:
            middle = (low + high) // 2
            page = await self._store.read(self.stream, after=middle, limit=1, kinds=["crowd_said"])
            if page and isinstance(page[0].payload, CrowdSaid) and page[0].payload.message.number <= number:
                low = page[0].seq
            else:
                high = middle
        return low

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def _start_writing(self) -> None:
        if self._writing is None:
            self._writing = run_once(f"write {self.stream}", self._write())

    async def _write(self) -> None:
        try:
            while self._new_events or self._waiting:
                new_events, self._new_events = self._new_events, []
                waiting, self._waiting = self._waiting, []
                try:
                    if new_events:
                        await self._store.append(new_events)
                except Exception as error:
                    self._fail(error, new_events, waiting)
                    continue
                self.problem = ""
                try:
                    self._publish(new_events, waiting)
                except Exception as error:
                    _log.exception("crowd messages were stored and not sent", room=self.admission.room)
                    _answer_with(error, waiting)
        finally:
            self._writing = None

    def _fail(self, error: Exception, new_events: Sequence[NewEvent], waiting: Sequence[_Waiting]) -> None:
        """Nothing of a batch was stored: its senders get the error and may send the same posts again."""
        self.failed_writes += 1
        self.problem = f"Messages could not be stored: {describe(error)[0]}"
        _log.error("crowd events were not stored", room=self.admission.room, error=describe(error)[0])
        lost = [event.payload.message for event in new_events if isinstance(event.payload, CrowdSaid)]
        for message in reversed(lost):
            self.admission.forget(message)
        lost_ids = {message.id for message in lost}
        repeated = [each for each in self._waiting if each[0] is not None and each[0].id in lost_ids]
        self._waiting = [each for each in self._waiting if each[0] is None or each[0].id not in lost_ids]
        _answer_with(error, [*waiting, *repeated])

    def _publish(self, new_events: Sequence[NewEvent], waiting: Sequence[_Waiting]) -> None:
        published: list[BusMessage] = []
        for event in new_events:
            payload = event.payload
            if isinstance(payload, CrowdSaid):
                self._recent.append(payload.message)
                published.append(BusMessage(self._subjects.firehose, payload.message))
            elif isinstance(payload, CrowdAudited):
                published.append(BusMessage(self._subjects.audit, payload.record))
        self._store.bus.publish(published)
        for message, answer in waiting:
            if not answer.done():
                answer.set_result(message)


def _answer_with(error: Exception, waiting: Sequence[_Waiting]) -> None:
    for _, answer in waiting:
        if not answer.done():
            answer.set_exception(error)


class ChatRoom:
    """A gateway with its readers."""

    def __init__(self, gateway: Gateway, bus: Bus) -> None:
        self.gateway = gateway
        self.fanout = Fanout(gateway.latest, last_sent=gateway.admission.last_number)
        self._bus = bus

    async def run(self) -> None:
        """Send new messages to the readers until cancelled."""
        async with self._bus.subscribe(Subjects(self.gateway.admission.room).firehose, limit=100_000) as firehose:
            # After a failure: what was stored meanwhile.
            self.fanout.flush()
            last = self.fanout.last_sent
            for missed in await self.gateway.after(last):
                self.fanout.send([missed])
                last = missed.number
            async for message in firehose:
                if message.body.number > last:
                    self.fanout.send([message.body])
