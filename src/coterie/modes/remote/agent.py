"""The other end of the line: a small agent, to build your own from. P12

Give it a function that takes an `Asked` and yields what to say: text, or a `ToolCall`, `ToolResult`, `Progress` or
`OutFile`. It keeps what it has told until the house has it, so that a line that breaks in between loses nothing; a
message that comes again is not done again.
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
from coterie.modes.remote.protocol import (
    CHUNK_SIZE,
    MAX_FRAME_SIZE,
    AgentGarbled,
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
_MAX_KEPT = 200
_log = get_logger(__name__)


@dataclass(frozen=True)
class AgentTask:
    """A message of a person."""

    id: str
    chat: str
    person: PersonInfo
    text: str
    files: tuple[tuple[FileInfo, Path], ...] = ()
    """What came with it, each with where it was put; gone once the message is settled."""


@dataclass(frozen=True)
class AgentStep:
    """Something done on the way: `tool_call`, `tool_result` or `progress`."""

    what: type[ToolCallStep | ToolResultStep | ProgressStep]
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
    """Files that are here whole."""
    steps: list[Step] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        return bool(self.steps) and isinstance(self.steps[-1], DoneStep | FailedStep)

    @property
    def ready(self) -> bool:
        return len(self.complete) == len(self.message.files)

    def place(self, number: int) -> Path:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="coterie-agent-")
        return Path(self.folder.name) / str(number)  # the name that a person gave is only told, never used

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
        """Listens; gives the address to write into agents.yaml."""
        async with AsyncExitStack() as stack:
            stack.callback(self._discard_all)
            server = await stack.enter_async_context(
                serve(self._connected, host, port, process_request=self._authorize, max_size=MAX_FRAME_SIZE)
            )
            beating = asyncio.create_task(self._send_heartbeats())
            stack.callback(beating.cancel)
            yield f"ws://{host}:{next(iter(server.sockets)).getsockname()[1]}"

    async def push(self, chat: str, kind: str, text: str) -> None:
        """Tell something nobody asked for just now: `task_done`, `task_error` or `task_progress`. It is kept until the
        house has it."""
        push = PushFrame.model_validate({"type": kind, "id": new_id(), "chat": chat, "text": text})
        self._pushes[push.id] = push
        await self._send(push)

    # --- the house -----------------------------------------------------------------------------------------------

    def _authorize(self, connection: ServerConnection, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token is not None and not hmac.compare_digest(self._token.encode(), given.encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.\n")
        return None

    async def _connected(self, house: ServerConnection) -> None:
        before, self._server = self._server, house
        if before is not None:
            await before.close()  # its line is dead, it only does not know yet
        with suppress(ConnectionClosed):
            await house.send(HelloFrame(name=self._name, epoch=self._epoch).to_json())
            for push in list(self._pushes.values()):
                await house.send(push.to_json())
            async for frame in house:
                try:
                    await self._handle_frame(frame)
                except AgentGarbled as error:
                    await house.close(1008, str(error)[:120])

    async def _handle_frame(self, frame: str | bytes) -> None:
        told = parse_server_frame(frame)
        match told:
            case MessageFrame():
                await self._handle_message(told)
            case FileChunkFrame():
                self._handle_file_chunk(told)
            case StopFrame():
                if (work := self._tasks.get(told.message)) is not None and work.task is not None:
                    work.task.cancel()
            case SettledFrame():
                self._pushes.pop(told.push, None)
                if (work := self._tasks.pop(told.message, None)) is not None:
                    work.discard()
            case _:
                return

    async def _handle_message(self, say: MessageFrame) -> None:
        work = self._tasks.get(say.id)
        if work is None:
            self._evict_finished()
            work = self._tasks[say.id] = _RunningTask(say)
            if work.ready:
                self._begin(work)
            return
        for step in work.steps[say.after :]:
            await self._send(step)

    def _handle_file_chunk(self, piece: FileChunkFrame) -> None:
        work = self._tasks.get(piece.message)
        if work is None or piece.file in work.complete or piece.file >= len(work.message.files):
            return  # it came before
        with work.place(piece.file).open("ab") as file:
            file.write(decode_data(piece.data))
        if piece.last:
            work.complete.add(piece.file)
            if work.ready:
                self._begin(work)

    # --- the work ------------------------------------------------------------------------------------------------

    def _begin(self, work: _RunningTask) -> None:
        work.task = asyncio.create_task(self._run_task(work), name=f"message {work.message.id}")

    async def _run_task(self, work: _RunningTask) -> None:
        say = work.message
        files = tuple((note, work.place(number)) for number, note in enumerate(say.files))
        try:
            async for made in self._handler(AgentTask(say.id, say.chat, say.person, say.text, files)):
                for step in _steps(made):
                    await self._send_step(work, step)
            await self._send_step(work, {"type": DoneStep})
        except asyncio.CancelledError:
            await self._send_step(work, {"type": DoneStep})
        except Exception as error:
            _log.exception("a message could not be answered", message=say.id)
            await self._send_step(work, {"type": FailedStep, "text": f"It failed over there ({type(error).__name__})."})

    async def _send_step(self, work: _RunningTask, told: dict[str, Any]) -> None:
        kind = told.pop("type")
        step = kind(message=work.message.id, number=len(work.steps) + 1, **told)
        work.steps.append(step)
        await self._send(step)

    async def _send(self, frame: Step | PushFrame | HeartbeatFrame) -> None:
        """What does not arrive is told again on the next line."""
        if self._server is not None:
            with suppress(ConnectionClosed):
                await self._server.send(frame.to_json())

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            if busy := tuple(message for message, work in self._tasks.items() if not work.ended):
                await self._send(HeartbeatFrame(messages=busy))

    def _evict_finished(self) -> None:
        """What the house never settled is forgotten in the end."""
        ended = [message for message, work in self._tasks.items() if work.ended]
        for message in ended[: max(0, len(self._tasks) - _MAX_KEPT)]:
            self._tasks.pop(message).discard()

    def _discard_all(self) -> None:
        for work in self._tasks.values():
            work.discard()


def _steps(made: AgentOutput) -> Iterator[dict[str, Any]]:
    if isinstance(made, str):
        yield {"type": TextStep, "text": made}
    elif isinstance(made, AgentStep):
        named = {"name": made.name} if made.what is not ProgressStep else {}
        yield {"type": made.what, "text": made.text, **named}
    else:
        common = {"type": FileStep, "name": made.name or made.path.name, "media_type": made.media_type}
        left = made.path.stat().st_size
        with made.path.open("rb") as file:
            while True:
                data = file.read(CHUNK_SIZE)
                left -= len(data)
                last = left <= 0 or not data
                yield {**common, "data": encode_data(data), "last": last}
                if last:
                    return
