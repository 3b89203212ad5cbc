"""One stream for all chats that a browser has open: many tabs, one connection. S19

`/live?follow=CHAT:EVENT&follow=…` tells of every chat from an event on. Each message names its chat, and its id says
how far all of them have been told, so that a browser that comes back with Last-Event-ID misses nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.surfaces.web.desk.pages import desk_updates
from coterie.surfaces.web.draft.live import PREFIX, DocumentUpdates
from coterie.surfaces.web.shared.dependencies import Here, House
from coterie.surfaces.web.story.live import INSTANCE, ChatUpdates, LiveUpdate, failed_job_updates

router = APIRouter(include_in_schema=False)
_log = get_logger(__name__)
_HEARTBEAT_S = 15
_MAX_CHATS = 100
_QUEUE_SIZE = 64


@router.get("/live", response_class=EventSourceResponse)
async def live(
    house: Here,
    follow: Annotated[list[str], Query(max_length=_MAX_CHATS)],
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    places = _positions(follow) | _positions((last_event_id or "").split(","))
    stopping = anyio.Event()
    return EventSourceResponse(
        _stream(house, places, stopping),
        sep="\n",
        ping=_HEARTBEAT_S,
        send_timeout=60,
        shutdown_event=stopping,
        shutdown_grace_period=2,
    )


def _positions(told: list[str]) -> dict[str, int]:
    """CHAT:EVENT pairs; what is no such pair is left out."""
    pairs = (one.rpartition(":") for one in told)
    return {chat: int(after) for chat, _, after in pairs if chat and after.isdecimal()}


async def _stream(house: House, places: dict[str, int], stopping: anyio.Event) -> AsyncIterator[ServerSentEvent]:
    told: asyncio.Queue[tuple[str, LiveUpdate] | None] = asyncio.Queue(_QUEUE_SIZE)
    tasks = [asyncio.create_task(_forward(house, chat, after, told)) for chat, after in places.items()]
    tasks.append(asyncio.create_task(_close_on_shutdown(stopping, told)))
    try:
        while (news := await told.get()) is not None:
            chat, one = news
            places[chat] = max(places[chat], one.event_id)
            yield _event(chat, one, places)
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(house: House, chat: str, after: int, told: asyncio.Queue[tuple[str, LiveUpdate] | None]) -> None:
    try:
        if chat == INSTANCE:
            heard = failed_job_updates(house, after)
        elif chat.startswith(PREFIX):
            heard = DocumentUpdates(house, chat, after).updates()
        elif house.desk.queries.is_desk(f"room:{chat}"):
            heard = desk_updates(house, f"room:{chat}", after)
        else:
            heard = ChatUpdates(house, f"room:{chat}", after).updates()
        async for news in heard:
            await told.put((chat, news))
    except Exception:
        _log.exception("a page can no longer be told of its chat", chat=chat)
    # A stream that tells of nothing any more ends, so that whoever listens comes back and asks again.
    await told.put(None)


async def _close_on_shutdown(stopping: anyio.Event, told: asyncio.Queue[tuple[str, LiveUpdate] | None]) -> None:
    await stopping.wait()
    await told.put(None)


def _event(chat: str, news: LiveUpdate, places: dict[str, int]) -> ServerSentEvent:
    # In JSON no text holds a line break, so none can end the event early; htmx 4 wants LF alone.
    data = redact(json.dumps({"chat": chat, "at": places[chat], **news.data}, ensure_ascii=True))
    at = ",".join(f"{one}:{after}" for one, after in places.items())
    return ServerSentEvent(data, event=news.name, id=at, retry=1_000, sep="\n")
