"""Takes posts, decides at the door, writes many in one commit, then tells everybody. Durable before it is shown.

While one batch is being committed the next gathers, so a quiet room answers at once and a busy one shares the disk's
work. What a sender gets is the numbered message, or a `Refused` with its rule; the audit has every refusal.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from coterie.base.clock import Clock
from coterie.eventstore import Bus, BusMessage, NewEvent, Payload, Store
from coterie.modes.crowd.events import CrowdAudited, CrowdRuled, CrowdSaid, room_stream
from coterie.modes.crowd.gateway.admission import Admission, Admitted
from coterie.modes.crowd.protocol import AuditRecord, ChatAuthor, ChatMessage, ChatPost, Subjects

# One room, a thousand sockets: what falls into one tick is put into one frame, made once, and handed to everybody.
#
# A reader that cannot keep up is not waited for and not fed: as soon as its buffer has drained it gets a snapshot, and
# goes on from there. Sockets tell when that is so instead of being asked: a tick is one write for each reader, and
# nothing else. The port is one call, so that any WebSocket library can stand behind it.


TICK_S = 0.05
MAX_OUTSTANDING_BYTES = 256 * 1024
"""Bytes a socket may have outstanding before its reader counts as slow."""
_SNAPSHOT_SIZE = 100


class Frame(NamedTuple):
    """What a tick tells everybody, encoded once."""

    text: bytes
    """Its JSON."""
    websocket: bytes
    """The same as a WebSocket sends it: a server's frames are the same bytes for everybody."""


Write = Callable[[bytes], None]
Encoding = Literal["text", "websocket"]


class Socket(Protocol):
    """One reader. It calls `hold` when more than `MOST_WAITING` bytes are outstanding, and `drained` when none are."""

    @property
    def encoding(self) -> Encoding:
        """Which of a frame's encodings it is handed."""
        ...

    @property
    def write(self) -> Write:
        """Hand bytes over. Never blocks."""
        ...


class Fanout:
    def __init__(self, snapshot: Callable[[int], Sequence[ChatMessage]], last_sent: int = 0) -> None:
        """`snapshot` gives the newest so many messages of the room; `told` is the number of its last one so far."""
        self._snapshot = snapshot
        self._active: dict[Encoding, dict[Socket, Write]] = {"text": {}, "websocket": {}}
        self._paused: set[Socket] = set()
        self._resuming: set[Socket] = set()
        """They were held, and get a snapshot with the next tick."""
        self._pending: list[ChatMessage] = []
        self._timer: asyncio.TimerHandle | None = None
        self.last_sent = last_sent
        """Up to which number everybody has heard. What is newer is still to come, and is in no snapshot."""
        self.frames = 0
        self.dropped = 0

    def join(self, socket: Socket, missed: Sequence[ChatMessage] | None = None) -> None:
        """A new reader gets a snapshot; one that comes back gets what it `missed`."""
        self.flush()
        if missed is None:
            first = self._snapshot_frame()
        else:
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
        """This reader is slow: it is not fed until it has drained."""
        if self._active[socket.encoding].pop(socket, None) is not None or socket in self._resuming:
            self._resuming.discard(socket)
            self._paused.add(socket)

    def resume(self, socket: Socket) -> None:
        """Nothing is outstanding any more: what it missed comes as a snapshot, with the next tick."""
        if socket in self._paused:
            self._paused.discard(socket)
            self._resuming.add(socket)

    @property
    def readers(self) -> int:
        return sum(map(len, self._active.values())) + len(self._paused) + len(self._resuming)

    def send(self, messages: Sequence[ChatMessage]) -> None:
        """Everybody hears of these with the next tick."""
        self._pending.extend(messages)
        if self._timer is None and self._pending:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        news = encode_frame("messages", self._pending)
        self.last_sent = self._pending[-1].number
        self._pending = []
        self.dropped += len(self._paused)
        caught_up, self._resuming = self._resuming, set()
        for encoding, fed in self._active.items():
            data: bytes = getattr(news, encoding)
            writes = list(fed.values())  # whoever is held while being written to leaves the dict
            for write in writes:
                write(data)
            self.frames += len(writes)
        if caught_up:
            picture = self._snapshot_frame()
            for socket in caught_up:
                self._activate(socket)
                socket.write(getattr(picture, socket.encoding))
            self.frames += len(caught_up)

    def _activate(self, socket: Socket) -> None:
        self._active[socket.encoding][socket] = socket.write

    def _snapshot_frame(self) -> Frame:
        return encode_frame(
            "snapshot", [message for message in self._snapshot(_SNAPSHOT_SIZE) if message.number <= self.last_sent]
        )


def encode_frame(kind: str, messages: Sequence[ChatMessage]) -> Frame:
    """The JSON of a frame: its kind, and the messages in order."""
    text = f'{{"type":"{kind}","messages":[{",".join([message.to_json() for message in messages])}]}}'.encode()
    return Frame(text, _websocket_header(len(text)) + text)


def _websocket_header(length: int) -> bytes:
    """RFC 6455, 5.2: a whole, unmasked text frame of so many bytes."""
    if length < 126:
        return bytes([0x81, length])
    return struct.pack("!BBH", 0x81, 126, length) if length < 65_536 else struct.pack("!BBQ", 0x81, 127, length)


_MAX_RECENT = 5_000
"""Messages at hand for whoever comes back; older ones are read from the log."""
_PAGE_SIZE = 1_000
_Waiting = tuple[ChatMessage, asyncio.Future[ChatMessage]]
_AUDIT_ACTIONS = {"timeout": "timeout", "ban": "ban", "pardon": "pardon", "kill": "killed", "revive": "revived"}


class Gateway:
    def __init__(self, store: Store, door: Admission, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.admission = door
        self.stream = room_stream(door.room)
        self._subjects = Subjects(door.room)
        self._recent: deque[ChatMessage] = deque(maxlen=_MAX_RECENT)
        self._new_events: list[NewEvent] = []
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def recover(self) -> None:
        """Know again what was said before this process began: numbers go on, and no sender's id counts twice."""
        said = await self._store.read(self.stream, kinds=["crowd_said"], limit=_MAX_RECENT, newest_first=True)
        for event in reversed(said):
            if isinstance(event.payload, CrowdSaid):
                self.admission.remember(event.payload.message)
                self._recent.append(event.payload.message)
        for event in await self._store.read(self.stream, kinds=["crowd_ruled"], limit=100_000):
            if isinstance(event.payload, CrowdRuled):
                self.admission.moderation_state.apply(event.payload)

    def post(self, post: ChatPost) -> asyncio.Future[ChatMessage]:
        """To be awaited: the message as everybody sees it, once it is durable; or `Refused`."""
        loop = asyncio.get_running_loop()
        decided = self.admission.admit(post, self.now_ms())
        answer: asyncio.Future[ChatMessage] = loop.create_future()
        if decided.audits:
            self._new_events.extend(
                NewEvent(self.stream, CrowdAudited(record=audit), "gateway") for audit in decided.audits
            )
        if isinstance(decided, Admitted):
            if not decided.duplicate:
                self._new_events.append(NewEvent(self.stream, CrowdSaid(message=decided.message), post.author.name))
            self._waiting.append((decided.message, answer))
        else:
            answer.set_exception(decided.error)
        if self._writing is None:
            self._writing = loop.create_task(self._write())
        return answer

    def record(self, payload: Payload, actor: str = "crowd") -> None:
        """Write something else of this room, in its place among the messages: a replay depends on that order."""
        self._new_events.append(NewEvent(self.stream, payload, actor))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def moderate(self, ruling: CrowdRuled) -> None:
        """A moderator's decision, in force at once and in the audit."""
        self.admission.moderation_state.apply(ruling)
        record = AuditRecord(
            room=self.admission.room,
            ts=ruling.at_ms,
            action=_AUDIT_ACTIONS.get(ruling.what, "setting"),
            rule=ruling.what,
            reason=ruling.reason or f"{ruling.what} by {ruling.by}",
            author=ChatAuthor(name=ruling.who or "room", kind="human" if ruling.who else "system"),
            by=ruling.by,
        )
        await self._store.append(
            [
                NewEvent(self.stream, ruling, ruling.by),
                NewEvent(self.stream, CrowdAudited(record=record), ruling.by),
            ]
        )
        self._store.bus.publish([BusMessage(self._subjects.audit, record)])

    async def flush(self) -> None:
        """Until everything posted so far is durable."""
        while self._writing is not None:
            await self._writing

    @property
    def waiting(self) -> int:
        """Posts that are not durable yet."""
        return len(self._waiting)

    def latest(self, many: int) -> list[ChatMessage]:
        """A snapshot: the newest messages, oldest first."""
        return list(self._recent)[-many:]

    async def after(self, number: int) -> list[ChatMessage]:
        """Every message after a number, for whoever comes back. From the log, if they were away for long."""
        if not self._recent or self._recent[0].number <= number + 1:
            return [message for message in self._recent if message.number > number]
        found: list[ChatMessage] = []
        seq = await self._store.head(self.stream) + 1
        while seq > 1 and (not found or found[-1].number > number + 1):
            seq = max(1, seq - _PAGE_SIZE)
            page = await self._store.read(self.stream, after=seq - 1, limit=_PAGE_SIZE, kinds=["crowd_said"])
            said = [event.payload.message for event in page if isinstance(event.payload, CrowdSaid)]
            known = found[-1].number if found else 2**62
            found.extend(message for message in reversed(said) if number < message.number < known)
            if said and said[0].number <= number + 1:
                break
        return found[::-1]

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def _write(self) -> None:
        try:
            while self._new_events or self._waiting:
                drafts, self._new_events = self._new_events, []
                waiting, self._waiting = self._waiting, []
                try:
                    if drafts:
                        await self._store.append(drafts)
                except Exception as error:
                    for _, answer in waiting:
                        if not answer.done():
                            answer.set_exception(error)
                    continue
                self._publish(drafts, waiting)
        finally:
            self._writing = None

    def _publish(self, drafts: Sequence[NewEvent], waiting: Sequence[_Waiting]) -> None:
        news: list[BusMessage] = []
        for draft in drafts:
            payload = draft.payload
            if isinstance(payload, CrowdSaid):
                self._recent.append(payload.message)
                news.append(BusMessage(self._subjects.firehose, payload.message))
            elif isinstance(payload, CrowdAudited):
                news.append(BusMessage(self._subjects.audit, payload.record))
        self._store.bus.publish(news)
        for message, answer in waiting:
            if not answer.done():
                answer.set_result(message)


# A gateway and everybody who listens to it: the firehose, passed on to its readers in ticks.


class ChatRoom:
    def __init__(self, gateway: Gateway, bus: Bus) -> None:
        self.gateway = gateway
        self.fanout = Fanout(gateway.latest, last_sent=gateway.admission.last_number)
        self._bus = bus

    async def run(self) -> None:
        """Pass the firehose on, until cancelled."""
        async with self._bus.subscribe(Subjects(self.gateway.admission.room).firehose, limit=100_000) as firehose:
            async for message in firehose:
                self.fanout.send([message.body])
