"""The agent's side of the protocol, to build agents from.

Give `Agent` a handler that takes an `AgentTask` and yields text, `AgentStep` or `OutputFile`. The agent keeps the steps
of a message until the server has stored them, so that a lost connection loses nothing; a message that is sent again is
not handled again.
"""

from __future__ import annotations

import asyncio
import hmac
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.supervisor import run_once
from coterie.modes.remote.protocol import (
    CHUNK_SIZE,
    MAX_FRAME_SIZE,
    AgentProtocolError,
    DoneStep,
    FailedStep,
    FileChunkFrame,
    FileInfo,
    FileStep,
    HeartbeatFrame,
    HelloFrame,
    MessageFrame,
    PersonInfo,
    ProgressStep,
    PushFrame,
    SettledFrame,
    Step,
    StopFrame,
    TextStep,
    ToolCallStep,
    ToolResultStep,
    decode_data,
    encode_data,
    parse_server_frame,
)

HEARTBEAT_S = 1.0
_MAX_TASKS = 200
_log = get_logger(__name__)


@dataclass(frozen=True)
class AgentTask:
    """A message of a person."""

    id: str
    chat: str
    person: PersonInfo
    text: str
    files: tuple[tuple[FileInfo, Path], ...] = ()
    """Attachments with the paths of their contents, which are deleted once the reply is stored."""


@dataclass(frozen=True)
class AgentStep:
    """A tool call, a tool result, or progress, before the reply is complete."""

    kind: type[ToolCallStep | ToolResultStep | ProgressStep]
    text: str = ""
    name: str = ""


@dataclass(frozen=True)
class OutputFile:
    path: Path
    name: str = ""
    media_type: str = "application/octet-stream"


AgentOutput = str | AgentStep | OutputFile
AgentHandler = Callable[[AgentTask], AsyncIterator[AgentOutput]]


@dataclass
class _RunningTask:
    message: MessageFrame
    folder: tempfile.TemporaryDirectory[str] | None = None
    complete: set[int] = field(default_factory=set)
    """The numbers of files that are complete."""
    steps: list[Step] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        return bool(self.steps) and isinstance(self.steps[-1], DoneStep | FailedStep)

    @property
    def ready(self) -> bool:
        return len(self.complete) == len(self.message.files)

    def file_path(self, number: int) -> Path:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="coterie-agent-")
        return Path(self.folder.name) / str(number)  # never the name that the person gave

    def discard(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.folder is not None:
            self.folder.cleanup()


class Agent:
    def __init__(self, handler: AgentHandler, token: str | None = None, name: str = "agent") -> None:
        self._handler = handler
        self._token = token
        self._name = name
        self._epoch = new_id()
        self._server: ServerConnection | None = None
        self._tasks: dict[str, _RunningTask] = {}
        self._pushes: dict[str, PushFrame] = {}

    @asynccontextmanager
    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Listen; yields the address for agents.yaml."""
        async with AsyncExitStack() as stack:
            stack.callback(self._discard_all)
            server = await stack.enter_async_context(
                serve(self._handle_connection, host, port, process_request=self._authorize, max_size=MAX_FRAME_SIZE)
            )
            heartbeats = run_once("heartbeats", self._send_heartbeats())
            stack.callback(heartbeats.cancel)
            yield f"ws://{host}:{next(iter(server.sockets)).getsockname()[1]}"

    async def push(self, chat: str, kind: str, text: str) -> None:
        """Send a notification of kind `task_done`, `task_error` or `task_progress`, again until it is stored."""
        push = PushFrame.model_validate({"type": kind, "id": new_id(), "chat": chat, "text": text})
        self._pushes[push.id] = push
        await self._send(push)

    def _authorize(self, connection: ServerConnection, request: Request) -> Response | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token is not None and not hmac.compare_digest(self._token.encode(), token.encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.\n")
        return None

    async def _handle_connection(self, server: ServerConnection) -> None:
        previous, self._server = self._server, server
        if previous is not None:
            await previous.close()
        with suppress(ConnectionClosed):
            await server.send(HelloFrame(name=self._name, epoch=self._epoch).to_json())
            for push in list(self._pushes.values()):
                await server.send(push.to_json())
            async for frame in server:
                try:
                    await self._handle_frame(frame)
                except AgentProtocolError as error:
                    await server.close(1008, str(error)[:120])

    async def _handle_frame(self, frame: str | bytes) -> None:
        match parse_server_frame(frame):
            case MessageFrame() as message:
                await self._handle_message(message)
            case FileChunkFrame() as chunk:
                self._handle_file_chunk(chunk)
            case StopFrame() as stop:
                if (running := self._tasks.get(stop.message)) is not None and running.task is not None:
                    running.task.cancel()
            case SettledFrame() as settled:
                self._pushes.pop(settled.push, None)
                if (running := self._tasks.pop(settled.message, None)) is not None:
                    running.discard()
            case _:
                return

    async def _handle_message(self, message: MessageFrame) -> None:
        running = self._tasks.get(message.id)
        if running is None:
            self._evict_finished()
            running = self._tasks[message.id] = _RunningTask(message)
            if running.ready:
                self._begin(running)
            return
        for step in running.steps[message.after :]:
            await self._send(step)

    def _handle_file_chunk(self, chunk: FileChunkFrame) -> None:
        running = self._tasks.get(chunk.message)
        if running is None or chunk.file in running.complete or chunk.file >= len(running.message.files):
            return  # the file was received before
        with running.file_path(chunk.file).open("ab") as file:
            file.write(decode_data(chunk.data))
        if chunk.last:
            running.complete.add(chunk.file)
            if running.ready:
                self._begin(running)

    def _begin(self, running: _RunningTask) -> None:
        running.task = run_once(f"message {running.message.id}", self._run_task(running))

    async def _run_task(self, running: _RunningTask) -> None:
        message = running.message
        files = tuple((info, running.file_path(number)) for number, info in enumerate(message.files))
        task = AgentTask(message.id, message.chat, message.person, message.text, files)
        try:
            async for output in self._handler(task):
                for kind, fields in _steps(output):
                    await self._send_step(running, kind, **fields)
            await self._send_step(running, DoneStep)
        except asyncio.CancelledError:
            await self._send_step(running, DoneStep)
        except Exception as error:
            _log.exception("a message could not be answered", message=message.id)
            await self._send_step(running, FailedStep, text=f"The agent failed ({type(error).__name__}).")

    async def _send_step(self, running: _RunningTask, kind: type[Step], **fields: Any) -> None:
        step = kind(message=running.message.id, number=len(running.steps) + 1, **fields)
        running.steps.append(step)
        await self._send(step)

    async def _send(self, frame: Step | PushFrame | HeartbeatFrame) -> None:
        """Send a frame; if the connection is lost, steps and pushes are sent again on the next one."""
        if self._server is not None:
            with suppress(ConnectionClosed):
                await self._server.send(frame.to_json())

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if busy := tuple(message for message, running in self._tasks.items() if not running.ended):
                await self._send(HeartbeatFrame(messages=busy))

    def _evict_finished(self) -> None:
        """Discard the oldest finished messages that the server never acknowledged."""
        ended = [message for message, running in self._tasks.items() if running.ended]
        for message in ended[: max(0, len(self._tasks) - _MAX_TASKS)]:
            self._tasks.pop(message).discard()

    def _discard_all(self) -> None:
        for running in self._tasks.values():
            running.discard()


def _steps(output: AgentOutput) -> Iterator[tuple[type[Step], dict[str, Any]]]:
    """The kinds and fields of the steps that one output of a handler becomes."""
    if isinstance(output, str):
        yield TextStep, {"text": output}
    elif isinstance(output, AgentStep):
        yield output.kind, {"text": output.text, **({"name": output.name} if output.kind is not ProgressStep else {})}
    else:
        fields = {"name": output.name or output.path.name, "media_type": output.media_type}
        left = output.path.stat().st_size
        with output.path.open("rb") as file:
            while True:
                data = file.read(CHUNK_SIZE)
                left -= len(data)
                last = left <= 0 or not data
                yield FileStep, {**fields, "data": encode_data(data), "last": last}
                if last:
                    return
