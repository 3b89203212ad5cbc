"""A crowd's room as it happens, for its page and the overlay: one stream of events, resumed by the last number. C3, C19

`snapshot` and `messages` hold what the firehose's frames hold, a tick at a time; a page that cannot keep up gets a
snapshot like any other slow reader. `context`, `trends`, `audit` and `state` are told as they come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.eventstore import WhenSlow
from coterie.modes.crowd import MAX_OUTSTANDING_BYTES, AuditRecord, CrowdRoom, Encoding, StreamContext, Trends
from coterie.surfaces.web.crowd.routes import CrowdRoomResponse
from coterie.surfaces.web.shared.dependencies import Here, House
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES

router = APIRouter(tags=["crowd"], responses=ERROR_RESPONSES)
_HEARTBEAT_S = 15
_Outgoing = tuple[str, str, int | None]
_EVENT_NAMES: dict[type[Any], str] = {StreamContext: "context", Trends: "trends", AuditRecord: "audit"}


class _PageReader:
    """A page, as the fan-out sees it: what was handed over and not yet written is what waits."""

    encoding: Encoding = "text"

    def __init__(self, room: CrowdRoom) -> None:
        self._room = room
        self._waiting = 0
        self.outgoing: asyncio.Queue[_Outgoing | None] = asyncio.Queue()

    def write(self, data: bytes) -> None:
        self._waiting += len(data)
        self.outgoing.put_nowait(("frame", data.decode(), self._room.fanout.last_sent))
        if self._waiting > MAX_OUTSTANDING_BYTES:
            self._room.fanout.pause(self)

    def written(self, data: str) -> None:
        self._waiting -= len(data.encode())
        if not self._waiting:
            self._room.fanout.resume(self)


@router.get(
    "/crowd/{room}/live",
    summary="The room as it happens: `frame`, `context`, `trends`, `audit`, `state` (text/event-stream)",
    response_class=EventSourceResponse,
)
async def live(
    house: Here,
    room: str,
    after: Annotated[int | None, Query(ge=0)] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    opened = await house.crowd.room(room)
    if last_event_id is not None and last_event_id.isdecimal():
        after = int(last_event_id)
    stopping = anyio.Event()
    return EventSourceResponse(
        _stream(house, opened, after, stopping),
        sep="\n",
        ping=_HEARTBEAT_S,
        send_timeout=60,
        shutdown_event=stopping,
        shutdown_grace_period=2,
    )


async def _stream(
    house: House, room: CrowdRoom, after: int | None, stopping: anyio.Event
) -> AsyncIterator[ServerSentEvent]:
    reader = _PageReader(room)
    missed = None if after is None else await room.gateway.after(after)
    beside = [
        asyncio.create_task(_listen(house, room, reader)),
        asyncio.create_task(_end_on_shutdown(stopping, reader)),
    ]
    try:
        yield _event("state", CrowdRoomResponse.of(room).model_dump_json())
        for context in room.contexts:
            yield _event("context", context.to_json())
        room.fanout.join(reader, missed)
        while (news := await reader.outgoing.get()) is not None:
            name, data, number = news
            yield _event(name, data, number)
            if name == "frame":
                reader.written(data)
    finally:
        room.fanout.leave(reader)
        for task in beside:
            task.cancel()


async def _listen(house: House, room: CrowdRoom, reader: _PageReader) -> None:
    pattern = f"*.*.{room.rules.name}"
    async with house.store.bus.subscribe(pattern, limit=10_000, when_slow=WhenSlow.DROP_OLDEST) as heard:
        async for message in heard:
            if (name := _EVENT_NAMES.get(type(message.body))) is not None:
                reader.outgoing.put_nowait((name, message.body.wire(), None))
            elif message.subject.startswith("crowd.state."):
                reader.outgoing.put_nowait(("state", CrowdRoomResponse.of(room).model_dump_json(), None))


async def _end_on_shutdown(stopping: anyio.Event, reader: _PageReader) -> None:
    await stopping.wait()
    reader.outgoing.put_nowait(None)


def _event(name: str, data: str, number: int | None = None) -> ServerSentEvent:
    # JSON by pydantic may hold U+2028, which no reader of events takes for a line's end; CR and LF are escaped in it.
    return ServerSentEvent(data, event=name, id=None if number is None else str(number), sep="\n")
