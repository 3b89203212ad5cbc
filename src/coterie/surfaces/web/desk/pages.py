"""The desk's pages: the conversations, and one of them with what goes on beside it. D1, D2, D4, D15"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Request, Response

from coterie.base.redaction import redact
from coterie.characters import OWNER
from coterie.conversation import LiveText, Turn, TurnQueries
from coterie.modes.desk import DeskChat
from coterie.surfaces.web.desk import routes
from coterie.surfaces.web.shared.dependencies import Here, House
from coterie.surfaces.web.shared.prose import clean_line, excerpt
from coterie.surfaces.web.shared.templates import PageRouter, fragment_response, page_response
from coterie.surfaces.web.story.live import LiveUpdate, can_resume

# What an open page is told of a desk: that something happened. It then asks for what it shows.
#
# Fifty workers record fifty things a second; a page looks twice a second at most, so what happens in between is told
# once.


_TICK_S = 0.5


async def desk_updates(house: House, room: str, after: int) -> AsyncIterator[LiveUpdate]:
    whole = not can_resume(house, after)
    async with house.feed.follow(room, None if whole else after) as following:
        yield LiveUpdate("timeline" if whole else "caught-up", {}, following.after)
        told = 0.0
        loop = asyncio.get_running_loop()
        async for news in following:
            if isinstance(news, LiveText):
                continue
            # The last of a burst is told too: the wait is before telling, and what comes meanwhile is read with it.
            if (rest := told + _TICK_S - loop.time()) > 0:
                await asyncio.sleep(rest)
            told = loop.time()
            yield LiveUpdate("changed", {"kind": news.kind, "model": ""}, news.id)


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
    trouble: str


@router.get("")
async def desks(house: Here, request: Request) -> Response:
    listed = [_chat_row(house, chat) for chat in house.desk.queries.chats()]
    standing = await house.desk.sandbox.status()
    choices = [(bot.id, clean_line(bot.name)) for bot in house.characters.all()]
    return page_response(request, "desk/chats.html", chats=listed, choices=choices, sandbox=standing)


@router.get("/{chat}")
async def show(house: Here, request: Request, chat: str) -> Response:
    found = house.desk.queries.chat(f"room:{chat}")
    at = house.feed.last_id()  # before anything is read: what comes later is told
    return page_response(
        request,
        "desk/chat.html",
        at=at,
        chat=found,
        id=chat,
        name=clean_line(house.characters.get(found.character).name),
        said=_turn_views(house, found),
        **await _now(house, chat),
    )


@router.get("/{chat}/messages")
async def talk(house: Here, chat: str) -> Response:
    found = house.desk.queries.chat(f"room:{chat}")
    name = clean_line(house.characters.get(found.character).name)
    return fragment_response(
        "desk/messages.html", said=_turn_views(house, found), name=name, waits=_reply_pending(house, found)
    )


@router.get("/{chat}/activity")
async def now(house: Here, chat: str) -> Response:
    return fragment_response("desk/activity.html", id=chat, **await _now(house, chat))


@router.get("/{chat}/processes/{process}")
async def steps(house: Here, chat: str, process: str) -> Response:
    work = await routes.process(house, chat, process)
    return fragment_response("desk/steps.html", work=work)


async def _now(house: House, chat: str) -> dict[str, Any]:
    whole = await routes.show(house, chat)
    found = house.desk.queries.chat(f"room:{chat}")
    return {"now": whole, "waits": _reply_pending(house, found), "skills": house.desk.skills.all(found.character)}


def _reply_pending(house: House, chat: DeskChat) -> bool:
    """Whether somebody spoke and is not answered yet."""
    newest = house.desk.queries.newest_message(chat.room)
    return newest is not None and not house.desk.replies.handled(newest)


def _turn_views(house: House, chat: DeskChat) -> list[DeskTurnView]:
    you, name = house.characters.owner().name, house.characters.get(chat.character).name

    def shown(turn: Turn) -> DeskTurnView:
        who = (you if turn.speaker == OWNER else turn.speaker) if turn.by_person else name
        return DeskTurnView(turn.id, clean_line(who), turn.by_person, turn.text, turn.shown_at, redact(turn.why))

    return [shown(turn) for turn in TurnQueries(house.store).latest(chat.room, _LAST)]


def _chat_row(house: House, chat: DeskChat) -> DeskChatRow:
    latest = TurnQueries(house.store).last_with_text(chat.room)
    name = clean_line(house.characters.get(chat.character).name)
    return DeskChatRow(
        id=chat.room.removeprefix("room:"),
        title=clean_line(chat.title) or name,
        name=name,
        busy=house.desk.queries.active_count(chat.room),
        snippet=excerpt(latest.text) if latest else "",
        at=latest.at if latest else None,
    )
