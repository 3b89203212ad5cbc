"""Pages of the desk: the conversations, one conversation with its activity, and its live updates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Request, Response

from coterie.base.redaction import redact
from coterie.characters import OWNER, Characters
from coterie.conversation import Feed, LiveText, Turn, TurnQueries
from coterie.eventstore import Store
from coterie.llm import Models
from coterie.modes.desk import DeskChat, DeskService
from coterie.surfaces.web.desk import routes
from coterie.surfaces.web.shared.dependencies import CharactersDep, DeskDep, FeedDep, ModelsDep, StoreDep
from coterie.surfaces.web.shared.prose import clean_line, excerpt
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response
from coterie.surfaces.web.story.live import LiveUpdate, can_resume

# Live updates only say that something changed; the page then loads what it shows. Fifty workers can record fifty events
# a second, so updates are sent at most every half second.


_TICK_S = 0.5


async def desk_updates(feed: Feed, room: str, after: int) -> AsyncIterator[LiveUpdate]:
    fresh = not can_resume(feed, after)
    async with feed.follow(room, None if fresh else after) as subscription:
        yield LiveUpdate("timeline" if fresh else "caught-up", {}, subscription.after)
        last_sent = 0.0
        loop = asyncio.get_running_loop()
        async for item in subscription:
            if isinstance(item, LiveText):
                continue
            # The wait comes before the update, so that the page also loads what happens meanwhile.
            if (rest := last_sent + _TICK_S - loop.time()) > 0:
                await asyncio.sleep(rest)
            last_sent = loop.time()
            yield LiveUpdate("changed", {"kind": item.kind, "model": ""}, item.id)


router = PageRouter(prefix="/desk")
_LAST = 100


@dataclass(frozen=True)
class DeskChatRow:
    id: str
    title: str
    name: str
    busy: int
    snippet: str
    at: datetime | None


@dataclass(frozen=True)
class DeskTurnView:
    """A turn as the page shows it."""

    id: str
    name: str
    by_person: bool
    text: str
    at: datetime
    error: str


@router.get("")
async def desks(store: StoreDep, characters: CharactersDep, desk: DeskDep, request: Request) -> Response:
    listed = [_chat_row(store, characters, desk, chat) for chat in desk.queries.chats()]
    sandbox = await desk.sandbox.status()
    choices = [(character.id, clean_line(character.name)) for character in characters.all()]
    return page_response(request, "desk/chats.html", chats=listed, choices=choices, sandbox=sandbox)


@router.get("/{chat}")
async def show(
    store: StoreDep,
    characters: CharactersDep,
    desk: DeskDep,
    feed: FeedDep,
    models: ModelsDep,
    request: Request,
    chat: str,
) -> Response:
    desk_chat = desk.queries.chat(f"room:{chat}")
    at = feed.last_id()  # read first, so that later changes arrive as live updates
    return page_response(
        request,
        "desk/chat.html",
        at=at,
        chat=desk_chat,
        id=chat,
        name=clean_line(characters.get(desk_chat.character).name),
        rooms=[one.label for one in desk.queries.delivery_rooms(desk_chat.person)],
        said=_turn_views(store, characters, desk_chat),
        **await _now(store, characters, desk, models, chat),
    )


@router.get("/{chat}/messages")
async def talk(store: StoreDep, characters: CharactersDep, desk: DeskDep, chat: str) -> Response:
    desk_chat = desk.queries.chat(f"room:{chat}")
    name = clean_line(characters.get(desk_chat.character).name)
    return fragment_response(
        "desk/messages.html",
        said=_turn_views(store, characters, desk_chat),
        name=name,
        waits=_reply_pending(desk, desk_chat),
    )


@router.get("/{chat}/activity")
async def now(store: StoreDep, characters: CharactersDep, desk: DeskDep, models: ModelsDep, chat: str) -> Response:
    return fragment_response("desk/activity.html", id=chat, **await _now(store, characters, desk, models, chat))


@router.get("/{chat}/processes/{process}")
async def steps(desk: DeskDep, chat: str, process: str) -> Response:
    work = await routes.process(desk, chat, process)
    return fragment_response("desk/steps.html", work=work)


async def _now(store: Store, characters: Characters, desk: DeskService, models: Models, chat: str) -> dict[str, Any]:
    whole = await routes.show(store, characters, desk, models, chat)
    desk_chat = desk.queries.chat(f"room:{chat}")
    return {
        "now": whole,
        "waits": _reply_pending(desk, desk_chat),
        "skills": desk.skills.all(desk_chat.character),
        "files": await asyncio.to_thread(desk.files, desk_chat.room),
    }


def _reply_pending(desk: DeskService, chat: DeskChat) -> bool:
    """Whether the newest message has no reply yet."""
    newest = desk.queries.newest_message(chat.room)
    return newest is not None and not desk.replies.handled(newest)


def _turn_views(store: Store, characters: Characters, chat: DeskChat) -> list[DeskTurnView]:
    you, name = characters.owner().name, characters.get(chat.character).name

    def shown(turn: Turn) -> DeskTurnView:
        who = (you if turn.speaker == OWNER else turn.speaker) if turn.by_person else name
        return DeskTurnView(turn.id, clean_line(who), turn.by_person, turn.text, turn.shown_at, redact(turn.why))

    return [shown(turn) for turn in TurnQueries(store).latest(chat.room, _LAST)]


def _chat_row(store: Store, characters: Characters, desk: DeskService, chat: DeskChat) -> DeskChatRow:
    latest = TurnQueries(store).last_with_text(chat.room)
    name = clean_line(characters.get(chat.character).name)
    return DeskChatRow(
        id=chat.room.removeprefix("room:"),
        title=clean_line(chat.title) or name,
        name=name,
        busy=desk.queries.active_count(chat.room),
        snippet=excerpt(latest.text) if latest else "",
        at=latest.at if latest else None,
    )
