"""The desk's pages: the conversations, and one of them with what goes on beside it. D1, D2, D4, D15"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Request, Response

from coterie.base.masking import mask
from coterie.cast.roster import YOU
from coterie.engine.turns import Timeline, Turn
from coterie.modes.desk import DeskChat
from coterie.surfaces.web import api_desk
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.negotiation import Pages
from coterie.surfaces.web.paper import fragment, page
from coterie.surfaces.web.typeset import harmless, inline

router = Pages(prefix="/desk")
_LAST = 100


@dataclass(frozen=True)
class Listed:
    id: str
    title: str
    name: str
    busy: int
    snippet: str
    at: datetime | None


@dataclass(frozen=True)
class Said:
    """A turn as the page shows it."""

    id: str
    name: str
    by_person: bool
    text: str
    at: datetime
    trouble: str


@router.get("")
async def desks(house: Here, request: Request) -> Response:
    listed = [_listed(house, chat) for chat in house.desk.book.chats()]
    standing = await house.desk.sandbox.standing()
    choices = [(bot.id, harmless(bot.name)) for bot in house.roster.bots()]
    return page(request, "desks.html", chats=listed, choices=choices, sandbox=standing)


@router.get("/{chat}")
async def show(house: Here, request: Request, chat: str) -> Response:
    found = house.desk.book.chat(f"room:{chat}")
    at = house.feed.last_id()  # before anything is read: what comes later is told
    return page(
        request,
        "desk.html",
        at=at,
        chat=found,
        id=chat,
        name=harmless(house.roster.bot(found.character).name),
        said=_said(house, found),
        **await _now(house, chat),
    )


@router.get("/{chat}/talk")
async def talk(house: Here, chat: str) -> Response:
    found = house.desk.book.chat(f"room:{chat}")
    name = harmless(house.roster.bot(found.character).name)
    return fragment("desk_talk.html", said=_said(house, found), name=name, waits=_waits(house, found))


@router.get("/{chat}/now")
async def now(house: Here, chat: str) -> Response:
    return fragment("desk_now.html", id=chat, **await _now(house, chat))


@router.get("/{chat}/processes/{process}")
async def steps(house: Here, chat: str, process: str) -> Response:
    work = await api_desk.process(house, chat, process)
    return fragment("desk_steps.html", work=work)


async def _now(house: House, chat: str) -> dict[str, Any]:
    whole = await api_desk.show(house, chat)
    found = house.desk.book.chat(f"room:{chat}")
    return {"now": whole, "waits": _waits(house, found), "skills": house.desk.skills.all(found.character)}


def _waits(house: House, chat: DeskChat) -> bool:
    """Whether somebody spoke and is not answered yet."""
    newest = house.desk.book.newest_message(chat.room)
    return newest is not None and not house.desk.answers.looked_at(newest)


def _said(house: House, chat: DeskChat) -> list[Said]:
    you, name = house.roster.you().name, house.roster.bot(chat.character).name

    def shown(turn: Turn) -> Said:
        who = (you if turn.speaker == YOU else turn.speaker) if turn.by_person else name
        return Said(turn.id, harmless(who), turn.by_person, turn.text, turn.shown_at, mask(turn.why))

    return [shown(turn) for turn in Timeline(house.store).latest(chat.room, _LAST)]


def _listed(house: House, chat: DeskChat) -> Listed:
    latest = Timeline(house.store).last_said(chat.room)
    name = harmless(house.roster.bot(chat.character).name)
    return Listed(
        id=chat.room.removeprefix("room:"),
        title=harmless(chat.title) or name,
        name=name,
        busy=house.desk.book.busy_count(chat.room),
        snippet=inline(latest.text) if latest else "",
        at=latest.at if latest else None,
    )
