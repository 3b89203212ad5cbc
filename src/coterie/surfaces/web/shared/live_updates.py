"""One event stream for everything that a browser has open: many tabs, one connection.

`/live?follow=CHANNEL:EVENT&follow=…` follows each channel (a chat, a document, the instance) from an event on. Each
message names its channel, and its id holds the positions of all of them, so that a browser which reconnects with
Last-Event-ID misses nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Header, Query
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import run_once
from coterie.base.values import parse_int64
from coterie.conversation import Feed
from coterie.eventstore import Store
from coterie.modes.desk import DeskService
from coterie.modes.draft import DraftService
from coterie.surfaces.web.desk.pages import desk_updates
from coterie.surfaces.web.draft.live import PREFIX, DocumentUpdates, document_of_channel
from coterie.surfaces.web.shared.access import AccessDep, checked_by_route, open_to_guests
from coterie.surfaces.web.shared.dependencies import DeskDep, DraftDep, FeedDep, StoreDep
from coterie.surfaces.web.story.live import (
    INSTANCE,
    ChatUpdates,
    LiveUpdate,
    TurnRenderer,
    TurnRendererDep,
    failed_job_updates,
)

router = APIRouter(include_in_schema=False)
_log = get_logger(__name__)
_HEARTBEAT_S = 15
_MAX_CHANNELS = 100
_QUEUE_SIZE = 64
_Updates = asyncio.Queue[tuple[str, LiveUpdate] | None]


class Channels:
    """The updates of each channel that a page can follow."""

    def __init__(
        self, store: Store, feed: Feed, desk: DeskService, draft: DraftService, renderer: TurnRenderer
    ) -> None:
        self._store = store
        self._feed = feed
        self._desk = desk
        self._draft = draft
        self._renderer = renderer

    def updates(self, channel: str, after: int) -> AsyncIterator[LiveUpdate]:
        room = f"room:{channel}"
        if channel == INSTANCE:
            return failed_job_updates(self._feed, after)
        if channel.startswith(PREFIX):
            return DocumentUpdates(self._store, self._draft, self._feed, channel, after).updates()
        if self._desk.queries.is_desk(room):
            return desk_updates(self._feed, room, after)
        return ChatUpdates(self._feed, self._renderer, room, after).updates()


async def _channels(
    store: StoreDep, feed: FeedDep, desk: DeskDep, draft: DraftDep, renderer: TurnRendererDep
) -> Channels:
    return Channels(store, feed, desk, draft, renderer)


@router.get("/live", response_class=EventSourceResponse)
@open_to_guests(checked_by_route)
async def live(
    channels: Annotated[Channels, Depends(_channels)],
    access: AccessDep,
    follow: Annotated[list[str], Query(max_length=_MAX_CHANNELS)],
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventSourceResponse:
    positions = _positions(follow) | _positions((last_event_id or "").split(","))
    if access.shares is not None:
        for channel in positions:
            access.contributor(*document_of_channel(channel))
    stopping = anyio.Event()
    return EventSourceResponse(
        _stream(channels, positions, stopping),
        sep="\n",
        ping=_HEARTBEAT_S,
        send_timeout=60,
        shutdown_event=stopping,
        shutdown_grace_period=2,
    )


def _positions(pairs: list[str]) -> dict[str, int]:
    """CHANNEL:EVENT pairs; anything else is ignored."""
    parts = (pair.rpartition(":") for pair in pairs)
    positions = ((channel, parse_int64(after)) for channel, _, after in parts if channel)
    return {channel: after for channel, after in positions if after is not None}


async def _stream(channels: Channels, positions: dict[str, int], stopping: anyio.Event) -> AsyncIterator[bytes]:
    """Updates that are there together are sent together: a system call for each is most of their cost."""
    queue: _Updates = asyncio.Queue(_QUEUE_SIZE)
    forwards = [_forward(channels, channel, after, queue) for channel, after in positions.items()]
    tasks = [run_once("live updates of a page", work) for work in (*forwards, _close_on_shutdown(stopping, queue))]
    try:
        item = await queue.get()
        while item is not None:
            events = b""
            while item is not None:
                channel, update = item
                positions[channel] = max(positions[channel], update.event_id)
                events += _event(channel, update, positions).encode()
                if queue.empty():
                    break
                item = queue.get_nowait()
            yield events
            item = await queue.get() if item is not None else None
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(channels: Channels, channel: str, after: int, queue: _Updates) -> None:
    try:
        async for update in channels.updates(channel, after):
            await queue.put((channel, update))
    except Exception:
        _log.exception("live updates of a page failed", channel=channel)
    # End the whole stream, so that the browser reconnects and follows every channel again.
    await queue.put(None)


async def _close_on_shutdown(stopping: anyio.Event, queue: _Updates) -> None:
    await stopping.wait()
    await queue.put(None)


def _event(channel: str, update: LiveUpdate, positions: dict[str, int]) -> ServerSentEvent:
    # In JSON no text holds a line break, so none can end the event early; htmx 4 wants LF alone.
    data = json.dumps({"chat": channel, "at": positions[channel], **redact.value(dict(update.data))}, ensure_ascii=True)
    event_id = ",".join(f"{one}:{after}" for one, after in positions.items())
    return ServerSentEvent(data, event=update.name, id=event_id, retry=1_000, sep="\n")
