"""The port of whoever plays a character from elsewhere: a message goes in, steps come out.

A remote agent at the end of a WebSocket is one; the stand-in, which needs no agent, is another.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus, WebSocketException

from coterie.base.config import Section
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.characters.errors import NoSuchCharacter
from coterie.characters.service import Character, Characters
from coterie.eventstore.jobs import backoff_s
from coterie.messaging.agents import REMOTE, STAND_IN, AgentEntry, AgentRegistry
from coterie.messaging.protocol import Attachment, Deliverable, OutgoingNotification, RoomRef
from coterie.modes.remote.events import RemoteChatQueries
from coterie.modes.remote.protocol import (
    CHUNK_SIZE,
    MAX_FRAME_SIZE,
    PROTOCOL_VERSION,
    AgentError,
    AgentFrame,
    AgentGarbled,
    AgentRefused,
    AgentSilent,
    AgentUnreachable,
    DoneStep,
    FailedStep,
    FileChunkFrame,
    HeartbeatFrame,
    HelloFrame,
    MessageFrame,
    ProgressStep,
    PushFrame,
    ServerFrame,
    SettledFrame,
    Step,
    StopFrame,
    TextStep,
    encode_data,
    parse_agent_frame,
)

# How patient the house is with agents.


class AgentsSettings(Section):
    """Remote agents, as agents.yaml names them."""

    silence_timeout_s: float = Field(default=3.0, gt=0)
    """A message of which an agent says nothing for so long, not even that it works, is given up."""
    reply_timeout_s: float = Field(default=600.0, gt=0)
    """The longest an agent may take for one answer."""
    heartbeat_s: float = Field(default=10.0, gt=0)
    """How often a quiet line is tried; unanswered for as long again, it is opened anew."""
    max_retry_pause_s: float = Field(default=30.0, gt=0)
    """The longest pause between two tries to reach an agent that nobody is waiting for."""


@dataclass(frozen=True)
class AgentRestarted:
    """Whoever answered has forgotten it and begins again: what it said so far does not count."""


AgentUpdate = Step | AgentRestarted


@dataclass(frozen=True)
class AgentRequest:
    """A message on its way to an agent."""

    message: MessageFrame
    attachments: tuple[Attachment, ...] = ()
    read: Callable[[Attachment], AsyncIterator[bytes]] | None = None
    """How an attachment's bytes are had."""


class AgentConnection(Protocol):
    def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        """Every step until `Done` or `Failed`, each once. `AgentError` where nothing (more) comes."""
        ...

    async def stop(self, message: str) -> None:
        """It need not go on with this one: `ask` ends."""
        ...

    async def acknowledge(self, message: str) -> None:
        """What it said is kept: it may forget it."""
        ...

    async def close(self) -> None: ...


# The line to one remote agent: a WebSocket that the house opens, keeps open, and opens again. P12
#
# Messages that are under way when the line breaks are sent again on the next one, with what we have of their answers. An
# agent that cannot be reached, or of which nothing is heard, is given up on for a message after a few seconds: a person
# waits at the other end. The line itself is tried for as long as the agent stands in the registry.


OnPush = Callable[[PushFrame], Awaitable[None]]
_RETRY_WHILE_WAITING_S = 0.1
_PROTOCOL_VIOLATIONS = frozenset({1002, 1003, 1007, 1009})
"""With these we hang up by ourselves: what came was no frame, no text, or too large."""


class _PendingRequest:
    """A message whose answer is under way."""

    def __init__(self, asking: AgentRequest) -> None:
        self.request = asking
        self.updates: asyncio.Queue[AgentUpdate | HeartbeatFrame | AgentError] = asyncio.Queue()
        self.after = 0
        """The number of the last step that we have."""
        self.epoch = ""
        self.error: AgentError | None = None
        """What went wrong since anything was last heard of it."""


class WebSocketConnection:
    def __init__(self, name: str, entry: AgentEntry, settings: AgentsSettings, on_push: OnPush) -> None:
        """`name` is the character's, for what people are told."""
        self._name = name
        self._entry = entry
        self._settings = settings
        self._on_push = on_push
        self._pending: dict[str, _PendingRequest] = {}
        self._socket: ClientConnection | None = None
        self._epoch = ""
        self._last_error: AgentError | None = None
        self._retry_now = asyncio.Event()
        self._outcome_known = asyncio.Event()
        """Set once it is known how things stand: there is a line, or there can be none."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name=f"agent {self._name}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        self.start()
        message = request.message.id
        under_way = self._pending[message] = _PendingRequest(request)
        try:
            if self._socket is None:
                self._retry_now.set()
            else:
                await self._send_request(self._socket, under_way)
            while True:
                try:
                    news = await asyncio.wait_for(under_way.updates.get(), self._settings.silence_timeout_s)
                except TimeoutError:
                    raise self._timeout_error(under_way.error) from None
                if isinstance(news, AgentError):
                    raise news
                if not isinstance(news, HeartbeatFrame):
                    yield news
                if isinstance(news, DoneStep | FailedStep):
                    return
        finally:
            self._pending.pop(message, None)

    async def stop(self, message: str) -> None:
        if (under_way := self._pending.get(message)) is not None:
            # Whether the agent listens or not: nobody waits for it any more.
            under_way.updates.put_nowait(DoneStep(message=message, number=under_way.after + 1))
        await self._send_if_connected(StopFrame(message=message))

    async def acknowledge(self, message: str) -> None:
        await self._send_if_connected(SettledFrame(message=message))

    async def wait_connected(self) -> None:
        """Until the line stands; the reason if it does not in time. For `coterie agent check`."""
        self.start()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outcome_known.wait(), self._settings.silence_timeout_s)
        if self._socket is None:
            raise self._timeout_error(self._last_error)

    # --- the line --------------------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        tries = 0
        while True:
            try:
                async with self._connect() as socket:
                    tries = 0
                    await self._listen(socket)
            except AgentUnreachable as error:
                self._record_error(error)
            except AgentError as error:
                self._record_error(error, at_once=True)
            except InvalidStatus as error:
                self._record_error(*self._status_error(error.response.status_code))
            except ConnectionClosedError as error:
                garbled = error.sent is not None and error.sent.code in _PROTOCOL_VIOLATIONS
                told = f"The line to {self._name} broke off."
                trouble = AgentGarbled(str(error)) if garbled else AgentUnreachable(told)
                self._record_error(trouble, at_once=garbled, cause=str(error))
            except (OSError, WebSocketException, TimeoutError) as error:
                told = f"{self._name} cannot be reached at the moment."
                self._record_error(AgentUnreachable(told), cause=f"{type(error).__name__}: {error}")
            except Exception:
                _log.exception("the line to an agent failed", agent=self._name)
                self._record_error(AgentUnreachable(f"The line to {self._name} does not work."))
            finally:
                self._socket = None
            tries += 1
            # While somebody waits, soon; otherwise with growing pauses, until somebody does.
            pause = (
                _RETRY_WHILE_WAITING_S if self._pending else backoff_s(tries, maximum=self._settings.max_retry_pause_s)
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._retry_now.wait(), pause)
            self._retry_now.clear()

    def _connect(self) -> connect:
        token = self._entry.token
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token is not None else {}
        return connect(
            self._entry.base_url,
            additional_headers=headers,
            open_timeout=self._settings.silence_timeout_s,
            close_timeout=1.0,
            ping_interval=self._settings.heartbeat_s,
            ping_timeout=self._settings.heartbeat_s,
            max_size=MAX_FRAME_SIZE,
            proxy=None,
        )

    async def _listen(self, socket: ClientConnection) -> None:
        await socket.send(HelloFrame(name=self._name).to_json())
        async with asyncio.timeout(self._settings.silence_timeout_s):
            hello = parse_agent_frame(await socket.recv())
        if not isinstance(hello, HelloFrame) or hello.version != PROTOCOL_VERSION:
            raise AgentGarbled(f"{self._name} speaks another protocol than I do.", "Whoever runs me has to look.")
        self._epoch, self._socket, self._last_error = hello.epoch, socket, None
        self._outcome_known.set()
        _log.info("an agent is there", agent=self._name)
        # Beside the reading: a large file on its way must not keep others from being heard.
        sending = [asyncio.create_task(self._send_request(socket, one)) for one in self._pending.values()]
        try:
            async for frame in socket:
                await self._handle_frame(socket, parse_agent_frame(frame))
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        raise AgentUnreachable(f"The line to {self._name} broke off.")

    async def _send_request(self, socket: ClientConnection, under_way: _PendingRequest) -> None:
        """Send a message, for the first time or again. What breaks here breaks the line, and it is sent on the next."""
        if under_way.after and under_way.epoch != self._epoch:
            under_way.after = 0
            under_way.updates.put_nowait(AgentRestarted())
        under_way.epoch = self._epoch
        asking = under_way.request
        try:
            await socket.send(asking.message.model_copy(update={"after": under_way.after}).to_json())
            for number, attachment in enumerate(asking.attachments):
                if asking.read is None:
                    break
                waiting = b""
                async for chunk in asking.read(attachment):
                    waiting += chunk
                    while len(waiting) >= CHUNK_SIZE:
                        piece, waiting = waiting[:CHUNK_SIZE], waiting[CHUNK_SIZE:]
                        await socket.send(
                            FileChunkFrame(message=asking.message.id, file=number, data=encode_data(piece)).to_json()
                        )
                        under_way.updates.put_nowait(HeartbeatFrame())  # it is we who are busy
                last = FileChunkFrame(message=asking.message.id, file=number, data=encode_data(waiting), last=True)
                await socket.send(last.to_json())
        except WebSocketException:
            return

    async def _handle_frame(self, socket: ClientConnection, frame: AgentFrame) -> None:
        if isinstance(frame, HelloFrame):
            return
        if isinstance(frame, PushFrame):
            await self._on_push(frame)
            await socket.send(SettledFrame(push=frame.id).to_json())
            return
        if isinstance(frame, HeartbeatFrame):
            for message in frame.messages:
                if (under_way := self._pending.get(message)) is not None:
                    under_way.updates.put_nowait(frame)
            return
        under_way = self._pending.get(frame.message)
        if under_way is None or frame.number <= under_way.after:
            return  # nobody waits for it any more, or it was told before
        if frame.number != under_way.after + 1:
            raise AgentGarbled(f"{self._name} left something out.")
        under_way.after, under_way.error = frame.number, None
        under_way.updates.put_nowait(frame)

    async def _send_if_connected(self, frame: ServerFrame) -> None:
        """What it need not hear: a line that breaks takes it along."""
        if self._socket is not None:
            with suppress(WebSocketException):
                await self._socket.send(frame.to_json())

    # --- trouble ---------------------------------------------------------------------------------------------

    def _record_error(self, error: AgentError, at_once: bool = False, cause: str = "") -> None:
        """Remembered for whoever gives up waiting; told at once where waiting cannot help."""
        if str(error) != str(self._last_error):
            _log.warning("an agent gives trouble", agent=self._name, error=redact(str(error)), cause=redact(cause))
        self._last_error = error
        for under_way in self._pending.values():
            under_way.error = error
            if at_once:
                under_way.updates.put_nowait(self._user_error(error))
        if at_once:
            self._outcome_known.set()

    def _timeout_error(self, trouble: AgentError | None) -> AgentError:
        if trouble is not None:
            return self._user_error(trouble)
        if self._socket is None:
            return AgentUnreachable(f"{self._name} cannot be reached at the moment.")
        return AgentSilent(f"{self._name} does not answer.")

    def _user_error(self, error: AgentError) -> AgentError:
        """How a frame was wrong is for the log; that something is wrong is for the person."""
        if isinstance(error, AgentGarbled):
            return AgentGarbled(f"What {self._name} answered cannot be understood.")
        return error

    def _status_error(self, status: int) -> tuple[AgentError, bool]:
        if status in (401, 403):
            return AgentRefused(f"{self._name} does not let me in.", "Whoever runs me has to look at its token."), True
        return AgentUnreachable(f"{self._name} is not well: it answered {status}."), False


# A character without an agent: it says what is written for it, after a while, as an agent would. P12
#
# For trying a surface out: rooms, streaming, the notice that something takes long.


_DEFAULT_LINES = ("This is a stand-in: no agent plays this character yet. I heard: {text}",)
_WORD_PAUSE_S = 0.02


class ScriptedConnection:
    def __init__(self, entry: AgentEntry) -> None:
        self._lines = entry.says or _DEFAULT_LINES
        self._latency_s = entry.latency_s
        self._answered: dict[str, int] = {}
        """How many answers each chat has had: the script goes round."""
        self._stop_requests: dict[str, asyncio.Event] = {}

    async def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        message, chat = request.message.id, request.message.chat
        number = self._answered[chat] = self._answered.get(chat, -1) + 1
        answer = self._lines[number % len(self._lines)].replace("{text}", request.message.text)
        stopped = self._stop_requests[message] = asyncio.Event()
        yield ProgressStep(message=message, number=1, text="thinking")
        at, pause_s = 1, self._latency_s
        for at, word in enumerate(answer.split(" "), 2):
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), pause_s)
            if stopped.is_set():
                break
            yield TextStep(message=message, number=at, text=word if at == 2 else f" {word}")
            pause_s = min(_WORD_PAUSE_S, self._latency_s)
        del self._stop_requests[message]
        yield DoneStep(message=message, number=at + 1)

    async def stop(self, message: str) -> None:
        if message in self._stop_requests:
            self._stop_requests[message].set()

    async def acknowledge(self, message: str) -> None:
        """It keeps nothing."""

    async def close(self) -> None:
        """It holds nothing open."""


# Every agent of the registry with its line, and what they push without being asked. P12


Notify = Callable[[Deliverable, str], Awaitable[None]]
_SYNC_INTERVAL_S = 1.0
_MAX_PUSH_LENGTH = 4_000
_log = get_logger(__name__)


class AgentConnections:
    def __init__(
        self,
        registry: AgentRegistry,
        roster: Characters,
        chats: RemoteChatQueries,
        settings: AgentsSettings,
        notify: Notify,
        room_of: Callable[[str], RoomRef | None],
    ) -> None:
        """`room_of` tells in which room a chat is held."""
        self._registry = registry
        self._roster = roster
        self._chats = chats
        self._settings = settings
        self._notify = notify
        self._room_of = room_of
        self._connections: dict[str, tuple[AgentEntry, AgentConnection]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep a line to every agent there is, for what they push; follow the registry as it changes."""
        while not stop.is_set():
            self.sync_registry()
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _SYNC_INTERVAL_S)
        await self.close()

    def sync_registry(self) -> None:
        played: set[str] = set()
        for name, entry in self._registry.current.characters.items():
            with suppress(NoSuchCharacter):  # `coterie agent list` tells of those
                bot = self._roster.find(name)
                played.add(bot.id)
                if entry.backend == REMOTE:
                    self.connection(bot)
        for gone in set(self._connections) - played:
            self._disconnect(gone)

    def connection(self, bot: Character) -> AgentConnection:
        entry = self._registry.entry(bot)
        if entry is None or entry.backend not in (REMOTE, STAND_IN):
            raise AgentUnreachable(f"Nobody plays {bot.name} at the moment.", "Whoever runs me has to look.")
        known = self._connections.get(bot.id)
        if known is not None and known[0] == entry:
            return known[1]
        if known is not None:
            self._disconnect(bot.id)
        line: AgentConnection
        if entry.backend == STAND_IN:
            line = ScriptedConnection(entry)
        else:
            link = WebSocketConnection(bot.name, entry, self._settings, lambda push: self._deliver_push(bot, push))
            link.start()
            line = link
        self._connections[bot.id] = (entry, line)
        return line

    async def close(self) -> None:
        for bot in list(self._connections):
            self._disconnect(bot)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _disconnect(self, bot: str) -> None:
        _, line = self._connections.pop(bot)
        task = asyncio.create_task(line.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _deliver_push(self, bot: Character, push: PushFrame) -> None:
        """Once, however often it is sent; and only into chats that this agent holds."""
        room = self._room_of(push.chat)
        if room is None or self._chats.character_of(push.chat) != bot.id:
            _log.warning("an agent told something for a chat it does not hold", agent=bot.name, push=push.type)
            return
        text = redact(push.text.strip()[:_MAX_PUSH_LENGTH]) or push.type.replace("_", " ")
        token = hashlib.sha256(f"agent push\n{bot.id}\n{push.id}".encode()).hexdigest()[:20]
        await self._notify(OutgoingNotification(room=room, text=f"{bot.name}: {text}"), token)
