"""The chats: the list of them, and one of them to read and play. S6, S17–S26"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Query, Request, Response

from coterie.cast import ready as shelf
from coterie.modes.story import Chat, ReadMarks, chat_details, describe_impact
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.negotiation import PageRouter
from coterie.surfaces.web.paper import fragment_response, page_response
from coterie.surfaces.web.telling import latest_turns_html
from coterie.surfaces.web.typeset import clean_line, excerpt

router = PageRouter(prefix="/chats")


@dataclass(frozen=True)
class ChatRow:
    """A chat as the list shows it."""

    id: str
    title: str
    host: str
    guests: list[str]
    snippet: str
    snippet_by: str
    clock: datetime
    at: datetime | None
    unread: int
    speaking: bool
    forked: bool


@router.get("")
async def chats(house: Here, request: Request) -> Response:
    listed = sorted((_chat_row(house, chat) for chat in house.story.chats.chats()), key=_latest, reverse=True)
    bots = house.roster.all()
    meet = [(key, shelf.starter_character(key).name, shelf.summary(key)) for key in shelf.NAMES] if not bots else []
    return page_response(request, "chats.html", chats=listed, bots=bots, meet=meet)


@router.get("/{chat}")
async def show(house: Here, request: Request, chat: str) -> Response:
    found = house.story.chats.chat(f"room:{chat}")
    at, html, before = await latest_turns_html(house, found.room)
    others = [bot for bot in house.roster.all() if bot.id not in found.characters]
    return page_response(
        request,
        "chat.html",
        chat=found,
        cast=_speakers(house, found),
        host=house.roster.get(found.host),
        others=others,
        turns=html,
        before=before,
        at=at,
        spent=_spent(house),
    )


@router.get("/{chat}/head")
async def head(house: Here, chat: str) -> Response:
    found = house.story.chats.chat(f"room:{chat}")
    others = [bot for bot in house.roster.all() if bot.id not in found.characters]
    return fragment_response("chat_head.html", chat=found, cast=_speakers(house, found), others=others)


@router.get("/{chat}/turns")
async def older(house: Here, chat: str, before: Annotated[int, Query(ge=1)]) -> Response:
    """The stretch before a turn, as the page puts it above; its header says where the next one ends."""
    found = house.story.chats.chat(f"room:{chat}")
    _, html, further = await latest_turns_html(house, found.room, before)
    return Response(html, media_type="text/html", headers={"X-Before": str(further or ""), "Vary": "Accept"})


@router.get("/{chat}/drawer")
async def drawer(house: Here, chat: str) -> Response:
    story = house.story
    found = story.chats.chat(f"room:{chat}")
    names = {entity: clean_line(name) for entity, name in story.participants.names(found).items()}
    seen = chat_details(found, names, story.chats, story.relationships, house.memory)
    here = story.chats.scene(found.room, found.scene).container if found.scene is not None else ""
    return fragment_response("drawer.html", chat=found, names=names, drawer=seen, here=here)


@router.get("/{chat}/rewind/{turn}")
async def rewind(house: Here, chat: str, turn: str) -> Response:
    impact = describe_impact(await house.story.preview_rewind(f"room:{chat}", turn))
    return fragment_response("rewind.html", chat=chat, turn=turn, impact=impact)


def _speakers(house: House, chat: Chat) -> list[tuple[str, str]]:
    """Who can answer: the host first, then the guests."""
    names = house.story.participants.names(chat)
    return [(bot, clean_line(names[bot])) for bot in chat.characters]


def _chat_row(house: House, chat: Chat) -> ChatRow:
    latest = house.story.timeline.last_with_text(chat.room)
    names = {entity: clean_line(name) for entity, name in house.story.participants.names(chat).items()}
    return ChatRow(
        id=chat.id,
        title=clean_line(chat.title),
        host=names[chat.host],
        guests=[names[guest] for guest in chat.guests],
        snippet=excerpt(latest.text) if latest else "",
        snippet_by=names.get(latest.speaker, "") if latest else "",
        clock=chat.clock,
        at=latest.at if latest else None,
        unread=ReadMarks(house.store).unread(chat.room),
        speaking=house.story.replies.is_running(chat.room),
        forked=chat.world == chat.room,
    )


def _latest(chat: ChatRow) -> tuple[bool, datetime | None]:
    return chat.at is not None, chat.at


def _spent(house: House) -> str:
    """What models cost today, as the status line says it."""
    micros = house.models.ledger.total().usd_micros
    return f"${micros / 1e6:.2f} today" if micros else "nothing spent today"
