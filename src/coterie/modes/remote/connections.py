"""Connections to remote agents: the port, a WebSocket client, a script for trying out, and the pool of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import Field
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedError,
    InvalidHandshake,
    InvalidStatus,
    WebSocketException,
)

from coterie.base.config import PageSetting, Section
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import SupervisedTask, Supervisor, pause, report_problem, report_recovery, run_once
from coterie.characters import Character, Characters, NoSuchCharacter
from coterie.eventstore import backoff_s
from coterie.messaging import (
    REMOTE,
    STAND_IN,
    AgentEntry,
    AgentRegistry,
    Attachment,
    Deliverable,
    OutgoingNotification,
    RoomRef,
)
from coterie.modes.remote.events import RemoteChatQueries
from coterie.modes.remote.protocol import (
    CHUNK_SIZE,
    MAX_FRAME_SIZE,
    PROTOCOL_VERSION,
    AgentError,
    AgentFrame,
    AgentProtocolError,
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

OnPush = Callable[[PushFrame], Awaitable[None]]
Notify = Callable[[Deliverable, str], Awaitable[None]]
_RETRY_WHILE_WAITING_S = 0.1
_PROTOCOL_VIOLATIONS = frozenset({1002, 1003, 1007, 1009})
"""Codes with which our side closes: the peer sent an invalid frame, no text, or too much of it."""
_DEFAULT_LINES = ("This is a stand-in: no agent plays this character yet. Your message: {text}",)
_WORD_PAUSE_S = 0.02
_SYNC_INTERVAL_S = 1.0
_MAX_PUSH_LENGTH = 4_000
_log = get_logger(__name__)


class AgentsSettings(Section):
    """Remote agents, which agents.yaml lists."""

    silence_timeout_s: PageSetting[float] = Field(default=3.0, gt=0)
    """How long to wait for a step or a heartbeat about a message before giving up."""
    reply_timeout_s: PageSetting[float] = Field(default=600.0, gt=0)
    """Maximum duration of one reply."""
    heartbeat_s: PageSetting[float] = Field(default=10.0, gt=0)
    """Interval of pings on a quiet connection; without an answer for as long again, it is opened anew."""
    max_retry_pause_s: PageSetting[float] = Field(default=30.0, gt=0)
    """Maximum pause between attempts to connect while no message waits."""


@dataclass(frozen=True)
class AgentRestarted:
    """The agent was restarted and begins the reply again: earlier steps do not count."""


AgentUpdate = Step | AgentRestarted


@dataclass(frozen=True)
class AgentRequest:
    """A message to an agent."""

    message: MessageFrame
    attachments: tuple[Attachment, ...] = ()
    read: Callable[[Attachment], AsyncIterator[bytes]] | None = None
    """Reads the contents of an attachment."""


class AgentConnection(Protocol):
    def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        """Every step up to `DoneStep` or `FailedStep`, each once. Raises `AgentError` if no more steps come."""
        ...

    async def stop(self, message: str) -> None:
        """Cancel a message: `ask` ends."""
        ...

    async def acknowledge(self, message: str) -> None:
        """Let the agent discard a message whose reply is stored."""
        ...

    def close(self) -> Coroutine[Any, Any, None]: ...


class _PendingRequest:
    """A message whose reply is not complete."""

    def __init__(self, request: AgentRequest) -> None:
        self.request = request
        self.updates: asyncio.Queue[AgentUpdate | HeartbeatFrame | AgentError] = asyncio.Queue()
        self.after = 0
        """The number of the last step that was received."""
        self.epoch = ""
        self.error: AgentError | None = None
        """The last error since a step was received."""


class WebSocketConnection:
    """Keeps a WebSocket to one agent open, and opens it again when it is lost.

    Pending messages are then sent again with the number of the last step received. A message fails after
    `silence_timeout_s` without a sign of it; connecting is attempted for as long as the agent is registered.
    """

    def __init__(
        self,
        name: str,
        entry: AgentEntry,
        settings: AgentsSettings,
        on_push: OnPush,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`name` is the character's, for messages to people."""
        self._supervisor = supervisor or Supervisor()
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
        """Set once the connection is open, or has failed for good."""
        self._task: SupervisedTask | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = self._supervisor.start(f"agent: {self._name}", self._keep_connected)

    def close(self) -> Coroutine[Any, Any, None]:
        """Close at once; the result waits for the end."""
        if self._task is not None:
            self._task.cancel()
        return self._wait_closed()

    async def _wait_closed(self) -> None:
        if self._task is not None:
            await self._task.wait()

    async def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        self.start()
        message = request.message.id
        pending = self._pending[message] = _PendingRequest(request)
        try:
            if self._socket is None:
                self._retry_now.set()
            else:
                await self._send_request(self._socket, pending)
            while True:
                try:
                    update = await asyncio.wait_for(pending.updates.get(), self._settings.silence_timeout_s)
                except TimeoutError:
                    raise self._timeout_error(pending.error) from None
                if isinstance(update, AgentError):
                    raise update
                if not isinstance(update, HeartbeatFrame):
                    yield update
                if isinstance(update, DoneStep | FailedStep):
                    return
        finally:
            self._pending.pop(message, None)

    async def stop(self, message: str) -> None:
        if (pending := self._pending.get(message)) is not None:
            # `ask` ends at once, whether the agent reacts or not.
            pending.updates.put_nowait(DoneStep(message=message, number=pending.after + 1))
        await self._send_if_connected(StopFrame(message=message))

    async def acknowledge(self, message: str) -> None:
        await self._send_if_connected(SettledFrame(message=message))

    async def wait_connected(self) -> None:
        """Wait until the connection is open; raises `AgentError` if it is not in time."""
        self.start()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._outcome_known.wait(), self._settings.silence_timeout_s)
        if self._socket is None:
            raise self._timeout_error(self._last_error)

    async def _keep_connected(self) -> None:
        attempts = 0
        while True:
            try:
                async with await self._connect() as socket:
                    attempts = 0
                    await self._listen(socket)
            except AgentUnreachable as error:
                self._record_error(error)
            except AgentError as error:
                self._record_error(error, permanent=True)
            except InvalidStatus as error:
                self._record_error(*self._status_error(error.response.status_code))
            except ConnectionClosedError as error:
                violation = error.sent is not None and error.sent.code in _PROTOCOL_VIOLATIONS
                reason = AgentProtocolError(str(error)) if violation else self._connection_lost()
                self._record_error(reason, permanent=violation, cause=str(error))
            except (OSError, WebSocketException, TimeoutError) as error:
                self._record_error(self._unreachable(), cause=f"{type(error).__name__}: {error}")
            except Exception:
                self._record_error(AgentUnreachable(f"The connection to {self._name} does not work."))
                raise
            finally:
                self._socket = None
            attempts += 1
            # Retry soon while a message waits, otherwise with growing pauses.
            pause = (
                _RETRY_WHILE_WAITING_S
                if self._pending
                else backoff_s(attempts, maximum=self._settings.max_retry_pause_s)
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(self._retry_now.wait(), pause)
            self._retry_now.clear()

    async def _connect(self) -> ClientConnection:
        token = self._entry.token
        headers = {"Authorization": f"Bearer {token.get_secret_value()}"} if token is not None else {}
        try:
            return await connect(
                self._entry.base_url,
                additional_headers=headers,
                open_timeout=self._settings.silence_timeout_s,
                close_timeout=1.0,
                ping_interval=self._settings.heartbeat_s,
                ping_timeout=self._settings.heartbeat_s,
                max_size=MAX_FRAME_SIZE,
                proxy=None,
            )
        except (ConnectionClosed, AssertionError) as error:
            # The server sent something, or closed, before it got our request; the library does not expect that.
            raise InvalidHandshake(
                f"The server did not wait for a request ({error or type(error).__name__})."
            ) from None

    async def _listen(self, socket: ClientConnection) -> None:
        await socket.send(HelloFrame(name=self._name).to_json())
        async with asyncio.timeout(self._settings.silence_timeout_s):
            hello = parse_agent_frame(await socket.recv())
        if not isinstance(hello, HelloFrame) or hello.version != PROTOCOL_VERSION:
            raise AgentProtocolError(f"{self._name} uses another version of the protocol.", "Update the agent.")
        self._epoch, self._socket, self._last_error = hello.epoch, socket, None
        self._outcome_known.set()
        _log.info("an agent is connected", agent=self._name)
        report_recovery()
        # In tasks, so that sending a large file does not delay receiving.
        name = f"message to {self._name}"
        sending = [run_once(name, self._send_request(socket, pending)) for pending in self._pending.values()]
        try:
            async for frame in socket:
                await self._handle_frame(socket, parse_agent_frame(frame))
        finally:
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        raise self._connection_lost()

    async def _send_request(self, socket: ClientConnection, pending: _PendingRequest) -> None:
        """Send a message, for the first time or again. If the connection is lost, the next one sends it again."""
        if pending.after and pending.epoch != self._epoch:
            pending.after = 0
            pending.updates.put_nowait(AgentRestarted())
        pending.epoch = self._epoch
        request, message = pending.request, pending.request.message.id
        try:
            await socket.send(request.message.model_copy(update={"after": pending.after}).to_json())
            for number, attachment in enumerate(request.attachments):
                if request.read is None:
                    break
                buffer = b""
                async for data in request.read(attachment):
                    buffer += data
                    while len(buffer) >= CHUNK_SIZE:
                        chunk, buffer = buffer[:CHUNK_SIZE], buffer[CHUNK_SIZE:]
                        await socket.send(
                            FileChunkFrame(message=message, file=number, data=encode_data(chunk)).to_json()
                        )
                        pending.updates.put_nowait(HeartbeatFrame())  # sending must not count as silence
                last = FileChunkFrame(message=message, file=number, data=encode_data(buffer), last=True)
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
                if (pending := self._pending.get(message)) is not None:
                    pending.updates.put_nowait(frame)
            return
        pending = self._pending.get(frame.message)
        if pending is None or frame.number <= pending.after:
            return  # the request has ended, or the step was received before
        if frame.number != pending.after + 1:
            raise AgentProtocolError(f"{self._name} left out a step.")
        pending.after, pending.error = frame.number, None
        pending.updates.put_nowait(frame)

    async def _send_if_connected(self, frame: ServerFrame) -> None:
        """Send a frame that may be lost."""
        if self._socket is not None:
            with suppress(WebSocketException):
                await self._socket.send(frame.to_json())

    def _record_error(self, error: AgentError, permanent: bool = False, cause: str = "") -> None:
        """Keep an error for pending requests, which time out with it; a permanent one ends them at once."""
        if str(error) != str(self._last_error):
            _log.warning("an agent has an error", agent=self._name, error=redact(str(error)), cause=redact(cause))
        self._last_error = error
        shown = self._public_error(error)
        report_problem(shown.what, shown.fix)
        for pending in self._pending.values():
            pending.error = error
            if permanent:
                pending.updates.put_nowait(self._public_error(error))
        if permanent:
            self._outcome_known.set()

    def _timeout_error(self, error: AgentError | None) -> AgentError:
        if error is not None:
            return self._public_error(error)
        if self._socket is None:
            return self._unreachable()
        return AgentSilent(f"{self._name} does not answer.")

    def _public_error(self, error: AgentError) -> AgentError:
        """The error as a person sees it: details of the protocol are only logged."""
        if isinstance(error, AgentProtocolError):
            return AgentProtocolError(f"The answer of {self._name} cannot be read.")
        return error

    def _unreachable(self) -> AgentUnreachable:
        return AgentUnreachable(f"{self._name} cannot be reached at the moment.")

    def _connection_lost(self) -> AgentUnreachable:
        return AgentUnreachable(f"The connection to {self._name} was lost.")

    def _status_error(self, status: int) -> tuple[AgentError, bool]:
        if status in (401, 403):
            return AgentRefused(f"{self._name} refuses the token.", "Correct its token in agents.yaml."), True
        return AgentUnreachable(f"{self._name} answered with HTTP status {status}."), False


class ScriptedConnection:
    """Plays a character without an agent: fixed lines in turn, word by word, to try out a surface."""

    def __init__(self, entry: AgentEntry) -> None:
        self._lines = entry.says or _DEFAULT_LINES
        self._latency_s = entry.latency_s
        self._next_line: dict[str, int] = {}
        self._stop_requests: dict[str, asyncio.Event] = {}

    async def ask(self, request: AgentRequest) -> AsyncIterator[AgentUpdate]:
        message, chat = request.message.id, request.message.chat
        line = self._next_line.get(chat, 0)
        self._next_line[chat] = (line + 1) % len(self._lines)
        reply = self._lines[line].replace("{text}", request.message.text)
        stopped = self._stop_requests[message] = asyncio.Event()
        yield ProgressStep(message=message, number=1, text="thinking")
        number, pause_s = 1, self._latency_s
        for number, word in enumerate(reply.split(" "), 2):
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), pause_s)
            if stopped.is_set():
                break
            yield TextStep(message=message, number=number, text=word if number == 2 else f" {word}")
            pause_s = min(_WORD_PAUSE_S, self._latency_s)
        del self._stop_requests[message]
        yield DoneStep(message=message, number=number + 1)

    async def stop(self, message: str) -> None:
        if message in self._stop_requests:
            self._stop_requests[message].set()

    async def acknowledge(self, message: str) -> None:
        """Nothing to discard."""

    async def close(self) -> None:
        """Nothing to close."""


class AgentConnections:
    """One connection per agent of the registry, and the delivery of what agents push."""

    def __init__(
        self,
        registry: AgentRegistry,
        characters: Characters,
        chats: RemoteChatQueries,
        settings: AgentsSettings,
        notify: Notify,
        room_of: Callable[[str], RoomRef | None],
        supervisor: Supervisor | None = None,
    ) -> None:
        """`room_of` returns the room of a chat."""
        self._registry = registry
        self._characters = characters
        self._chats = chats
        self._settings = settings
        self._notify = notify
        self._room_of = room_of
        self._supervisor = supervisor or Supervisor()
        self._connections: dict[str, tuple[AgentEntry, AgentConnection]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep a connection to every registered agent, following changes of the registry."""
        while not stop.is_set():
            self.sync_registry()
            await pause(stop, _SYNC_INTERVAL_S)
        await self.close()

    def sync_registry(self) -> None:
        registered: set[str] = set()
        for name, entry in self._registry.current.characters.items():
            with suppress(NoSuchCharacter):  # `coterie agent list` reports these
                character = self._characters.find(name)
                registered.add(character.id)
                if entry.backend == REMOTE:
                    self.connection(character)
        for removed in set(self._connections) - registered:
            self._disconnect(removed)

    def connection(self, character: Character) -> AgentConnection:
        entry = self._registry.entry(character)
        if entry is None or entry.backend not in (REMOTE, STAND_IN):
            raise AgentUnreachable(f"No agent plays {character.name} at the moment.", "Add one to agents.yaml.")
        existing = self._connections.get(character.id)
        if existing is not None and existing[0] == entry:
            return existing[1]
        if existing is not None:
            self._disconnect(character.id)
        connection: AgentConnection
        if entry.backend == STAND_IN:
            connection = ScriptedConnection(entry)
        else:
            connection = WebSocketConnection(
                character.name,
                entry,
                self._settings,
                lambda push: self._deliver_push(character, push),
                self._supervisor,
            )
            connection.start()
        self._connections[character.id] = (entry, connection)
        return connection

    async def close(self) -> None:
        for character_id in list(self._connections):
            self._disconnect(character_id)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def _disconnect(self, character_id: str) -> None:
        _, connection = self._connections.pop(character_id)
        task = run_once("close the connection to an agent", connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _deliver_push(self, character: Character, push: PushFrame) -> None:
        """Deliver a push once, even if it is sent again, and only to chats of this agent."""
        room = self._room_of(push.chat)
        if room is None or self._chats.character_of(push.chat) != character.id:
            _log.warning("an agent pushed to a chat that is not its own", agent=character.name, push=push.type)
            return
        text = redact(push.text.strip()[:_MAX_PUSH_LENGTH]) or push.type.replace("_", " ")
        token = hashlib.sha256(f"agent push\n{character.id}\n{push.id}".encode()).hexdigest()[:20]
        await self._notify(OutgoingNotification(room=room, text=f"{character.name}: {text}"), token)
