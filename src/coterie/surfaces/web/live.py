"""The live stream of a chat: a snapshot first, then every change, and words as they are spoken. S19

`snapshot` and `change` carry the id of the last event they tell of. A browser that comes back sends it as
Last-Event-ID and is told what it missed. `token` carries the reply and the offset of its text within it: whoever
puts the text there has every word once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Header
from sse_starlette import EventSourceResponse, ServerSentEvent

from coterie.engine.feed import Feed, FeedSubscription
from coterie.engine.replies import LiveText
from coterie.kernel import AnyEvent
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import ChatResponse, TurnResponse

router = APIRouter(tags=["live"], responses=ERROR_RESPONSES)
_SNAPSHOT_TURNS = 50
_HEARTBEAT_S = 15
_MAX_MISSED_EVENTS = 5_000
"""After this many events a fresh snapshot is less to read than what was missed."""


@router.get(
    "/chats/{chat}/events",
    summary="The live stream: `snapshot`, then `change` and `token` events (text/event-stream)",
    response_class=EventSourceResponse,
)
async def events(house: Here, chat: str, last_event_id: Annotated[str | None, Header()] = None) -> EventSourceResponse:
    room = house.story.chats.chat(f"room:{chat}").room
    stopping = anyio.Event()
    # htmx 4 splits an event when CR and LF come in different chunks, hence LF alone.
    return EventSourceResponse(
        _stream(house, room, _resume_position(house.feed, last_event_id), stopping),
        sep="\n",
        ping=_HEARTBEAT_S,
        send_timeout=60,
        shutdown_event=stopping,
        shutdown_grace_period=2,
    )


def _resume_position(feed: Feed, told: str | None) -> int | None:
    if told is None or not told.isdecimal():
        return None
    after, last = int(told), feed.last_id()
    return after if last - _MAX_MISSED_EVENTS <= after <= last else None


async def _stream(house: House, room: str, after: int | None, stopping: anyio.Event) -> AsyncIterator[ServerSentEvent]:
    async with house.feed.follow(room, after) as following:
        ending = asyncio.create_task(_end_on_shutdown(stopping, following))
        try:
            if after is None:
                yield _snapshot(house, room, following)
            async for news in following:
                if isinstance(news, LiveText):
                    yield _event("token", {"reply": news.reply, "offset": news.offset, "text": news.text})
                else:
                    yield _event("change", _change_data(news), news.id)
        finally:
            ending.cancel()


async def _end_on_shutdown(stopping: anyio.Event, following: FeedSubscription) -> None:
    """A server that stops ends its streams in order; whoever listened comes back with the last id."""
    await stopping.wait()
    following.close()


def _snapshot(house: House, room: str, following: FeedSubscription) -> ServerSentEvent:
    """All of it at one moment: if something happens while it is put together, it is put together again."""
    story = house.story
    while True:
        following.after = house.feed.last_id()
        chat = story.chats.chat(room)
        names = story.participants.names(chat)
        turns = story.timeline.latest(room, _SNAPSHOT_TURNS)
        speaking = story.replies.partial(room)
        state = ChatResponse.of(house, chat).model_dump(mode="json")
        if house.feed.last_id() == following.after:
            break
    shown: list[dict[str, Any]] = []
    for turn in turns:
        text = None
        if speaking is not None and turn.id == speaking.reply:
            text = speaking.text
            following.mark_sent(turn.id, len(text))
        shown.append(TurnResponse.of(turn, names, text).model_dump(mode="json"))
    return _event("snapshot", {"chat": state, "turns": shown}, following.after)


def _change_data(event: AnyEvent) -> dict[str, Any]:
    payload = event.payload.model_dump(mode="json")
    if event.kind == "prompt_sent":
        payload = {"reply": payload["reply"], "tokens": payload["tokens"]}  # the inspector shows the rest
    return {
        "id": event.id,
        "seq": event.seq,
        "kind": event.kind,
        "actor": event.actor,
        "turn": event.turn,
        "at": event.ts.isoformat(),
        "payload": payload,
    }


def _event(name: str, told: dict[str, Any], event_id: int | None = None) -> ServerSentEvent:
    # In JSON no text holds a line break, so none can end the event early.
    data = json.dumps(told, ensure_ascii=True)
    return ServerSentEvent(data, event=name, id=None if event_id is None else str(event_id), sep="\n")
