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
from coterie.modes.remote.errors import AgentGarbled
from coterie.modes.remote.wire import (
    LARGEST_FRAME,
    PIECE,
    Beat,
    Done,
    Failed,
    FileNote,
    FilePiece,
    Hello,
    Progress,
    Push,
    Say,
    SendFile,
    Settled,
    Step,
    Stop,
    TextChunk,
    ToolCall,
    ToolResult,
    Who,
    packed,
    to_agent,
    unpacked,
)

BEAT_S = 1.0
_MOST_KEPT = 200
_log = get_logger(__name__)


@dataclass(frozen=True)
class Asked:
    """A message of a person."""

    id: str
    chat: str
    person: Who
    text: str
    files: tuple[tuple[FileNote, Path], ...] = ()
    """What came with it, each with where it was put; gone once the message is settled."""


@dataclass(frozen=True)
class Act:
    """Something done on the way: `tool_call`, `tool_result` or `progress`."""

    what: type[ToolCall | ToolResult | Progress]
    text: str = ""
    name: str = ""


@dataclass(frozen=True)
class OutFile:
    path: Path
    name: str = ""
    media_type: str = "application/octet-stream"


Made = str | Act | OutFile
Handler = Callable[[Asked], AsyncIterator[Made]]


@dataclass
class _Work:
    say: Say
    folder: tempfile.TemporaryDirectory[str] | None = None
    complete: set[int] = field(default_factory=set)
    """Files that are here whole."""
    steps: list[Step] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def ended(self) -> bool:
        return bool(self.steps) and isinstance(self.steps[-1], Done | Failed)

    @property
    def ready(self) -> bool:
        return len(self.complete) == len(self.say.files)

    def place(self, number: int) -> Path:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="coterie-agent-")
        return Path(self.folder.name) / str(number)  # the name that a person gave is only told, never used

    def forget(self) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.folder is not None:
            self.folder.cleanup()


class Agent:
    def __init__(self, handler: Handler, token: str | None = None, name: str = "agent") -> None:
        self._handler = handler
        self._token = token
        self._name = name
        self._epoch = new_id()
        self._house: ServerConnection | None = None
        self._work: dict[str, _Work] = {}
        self._pushes: dict[str, Push] = {}

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Listens; gives the address to write into agents.yaml."""
        async with AsyncExitStack() as stack:
            stack.callback(self._forget_all)
            server = await stack.enter_async_context(
                serve(self._connected, host, port, process_request=self._door, max_size=LARGEST_FRAME)
            )
            beating = asyncio.create_task(self._beat())
            stack.callback(beating.cancel)
            yield f"ws://{host}:{next(iter(server.sockets)).getsockname()[1]}"

    async def push(self, chat: str, kind: str, text: str) -> None:
        """Tell something nobody asked for just now: `task_done`, `task_error` or `task_progress`. It is kept until the
        house has it."""
        push = Push.model_validate({"type": kind, "id": new_id(), "chat": chat, "text": text})
        self._pushes[push.id] = push
        await self._send(push)

    # --- the house -----------------------------------------------------------------------------------------------

    def _door(self, connection: ServerConnection, request: Request) -> Response | None:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self._token is not None and not hmac.compare_digest(self._token.encode(), given.encode()):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "The token is missing or wrong.\n")
        return None

    async def _connected(self, house: ServerConnection) -> None:
        before, self._house = self._house, house
        if before is not None:
            await before.close()  # its line is dead, it only does not know yet
        with suppress(ConnectionClosed):
            await house.send(Hello(name=self._name, epoch=self._epoch).line())
            for push in list(self._pushes.values()):
                await house.send(push.line())
            async for frame in house:
                try:
                    await self._take(frame)
                except AgentGarbled as error:
                    await house.close(1008, str(error)[:120])

    async def _take(self, frame: str | bytes) -> None:
        told = to_agent(frame)
        match told:
            case Say():
                await self._asked(told)
            case FilePiece():
                self._piece(told)
            case Stop():
                if (work := self._work.get(told.message)) is not None and work.task is not None:
                    work.task.cancel()
            case Settled():
                self._pushes.pop(told.push, None)
                if (work := self._work.pop(told.message, None)) is not None:
                    work.forget()
            case _:
                return

    async def _asked(self, say: Say) -> None:
        work = self._work.get(say.id)
        if work is None:
            self._make_room()
            work = self._work[say.id] = _Work(say)
            if work.ready:
                self._begin(work)
            return
        for step in work.steps[say.after :]:
            await self._send(step)

    def _piece(self, piece: FilePiece) -> None:
        work = self._work.get(piece.message)
        if work is None or piece.file in work.complete or piece.file >= len(work.say.files):
            return  # it came before
        with work.place(piece.file).open("ab") as file:
            file.write(unpacked(piece.data))
        if piece.last:
            work.complete.add(piece.file)
            if work.ready:
                self._begin(work)

    # --- the work ------------------------------------------------------------------------------------------------

    def _begin(self, work: _Work) -> None:
        work.task = asyncio.create_task(self._do(work), name=f"message {work.say.id}")

    async def _do(self, work: _Work) -> None:
        say = work.say
        files = tuple((note, work.place(number)) for number, note in enumerate(say.files))
        try:
            async for made in self._handler(Asked(say.id, say.chat, say.person, say.text, files)):
                for step in _steps(made):
                    await self._step(work, step)
            await self._step(work, {"type": Done})
        except asyncio.CancelledError:
            await self._step(work, {"type": Done})
        except Exception as error:
            _log.exception("a message could not be answered", message=say.id)
            await self._step(work, {"type": Failed, "text": f"It failed over there ({type(error).__name__})."})

    async def _step(self, work: _Work, told: dict[str, Any]) -> None:
        kind = told.pop("type")
        step = kind(message=work.say.id, number=len(work.steps) + 1, **told)
        work.steps.append(step)
        await self._send(step)

    async def _send(self, frame: Step | Push | Beat) -> None:
        """What does not arrive is told again on the next line."""
        if self._house is not None:
            with suppress(ConnectionClosed):
                await self._house.send(frame.line())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            if busy := tuple(message for message, work in self._work.items() if not work.ended):
                await self._send(Beat(messages=busy))

    def _make_room(self) -> None:
        """What the house never settled is forgotten in the end."""
        ended = [message for message, work in self._work.items() if work.ended]
        for message in ended[: max(0, len(self._work) - _MOST_KEPT)]:
            self._work.pop(message).forget()

    def _forget_all(self) -> None:
        for work in self._work.values():
            work.forget()


def _steps(made: Made) -> Iterator[dict[str, Any]]:
    if isinstance(made, str):
        yield {"type": TextChunk, "text": made}
    elif isinstance(made, Act):
        named = {"name": made.name} if made.what is not Progress else {}
        yield {"type": made.what, "text": made.text, **named}
    else:
        common = {"type": SendFile, "name": made.name or made.path.name, "media_type": made.media_type}
        left = made.path.stat().st_size
        with made.path.open("rb") as file:
            while True:
                data = file.read(PIECE)
                left -= len(data)
                last = left <= 0 or not data
                yield {**common, "data": packed(data), "last": last}
                if last:
                    return
