"""The characters: who there is, who they are, how they are written, and how a chat with one begins. S1, S7–S10, S25"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from textwrap import shorten

from fastapi import Request, Response

from coterie.base.errors import CoterieError
from coterie.cast import ready as shelf
from coterie.cast.identity import Identity
from coterie.cast.roster import Bot
from coterie.modes.story import Opening, Proposal
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.negotiation import Pages
from coterie.surfaces.web.paper import fragment, page
from coterie.surfaces.web.portraits import portrait
from coterie.surfaces.web.typeset import inline
from coterie.surfaces.web.versions import versions
from coterie.surfaces.web.whereabouts import whereabouts

router = Pages(prefix="/bots")
_SNIPPET = 120


@dataclass(frozen=True)
class Met:
    """A character as the gallery shows it."""

    id: str
    name: str
    line: str
    portrait: str
    chats: int


@router.get("")
async def gallery(house: Here, request: Request) -> Response:
    chats = Counter(bot for chat in house.story.chats.chats() for bot in chat.characters)
    bots = [
        Met(bot.id, bot.name, in_a_line(bot.identity), portrait(house, bot.id), chats[bot.id])
        for bot in house.roster.bots()
    ]
    return page(request, "bots.html", bots=bots, ready=_ready())


@router.get("/new")
async def new(house: Here, request: Request) -> Response:
    first = not house.roster.bots()
    return page(request, "bot_new.html", ready=_ready(), first=first, identity=None)


@router.get("/{bot}")
async def show(house: Here, request: Request, bot: str) -> Response:
    found = house.roster.bot(bot)
    told = versions(house.roster.versions(bot), house.roster.written(bot))
    return page(
        request,
        "bot.html",
        bot=found,
        portrait=portrait(house, bot),
        versions=told,
        where=await whereabouts(house, bot),
    )


@router.get("/{bot}/edit")
async def edit(house: Here, request: Request, bot: str) -> Response:
    found = house.roster.bot(bot)
    return page(request, "bot_edit.html", bot=found, identity=found.identity)


@router.get("/{bot}/kickoff")
async def kickoff(house: Here, request: Request, bot: str) -> Response:
    """The page is there at once; what the classifier reads from the prose comes into it when it is ready."""
    return page(request, "kickoff.html", bot=house.roster.bot(bot), portrait=portrait(house, bot))


@router.get("/{bot}/kickoff/form")
async def kickoff_form(house: Here, bot: str, empty: bool = False) -> Response:
    found = house.roster.bot(bot)
    proposal = _by_hand(found) if empty else await _proposal(house, found)
    told = proposal.opening
    starts = f"{told.starts(datetime.now(UTC)):%Y-%m-%dT%H:%M}" if told.time else ""
    return fragment(
        "kickoff_form.html",
        bot=found,
        you=house.roster.you(),
        opening=told,
        notice=proposal.notice,
        starts=starts,
    )


async def _proposal(house: House, bot: Bot) -> Proposal:
    """S8: whatever goes wrong, there is a form."""
    try:
        return await house.story.propose(bot.id)
    except CoterieError as error:
        empty = _by_hand(bot)
        return empty.model_copy(update={"notice": f"{error.what} Fill in what you like by hand."})


def _by_hand(bot: Bot) -> Proposal:
    greeting = (bot.card.data.first_mes if bot.card else "") or bot.identity.kickoff
    return Proposal(opening=Opening(greeting=greeting))


def in_a_line(identity: Identity) -> str:
    """The first sentence about somebody, or what they are like."""
    text = inline(identity.persona, 400)
    end = next((at + 1 for at, c in enumerate(text) if c in ".!?" and text[at + 1 : at + 2] in ("", " ")), len(text))
    return shorten(text[:end], _SNIPPET, placeholder=" …") or ", ".join(identity.traits[:5])


def _ready() -> list[tuple[str, str, str]]:
    return [(name, shelf.ready(name).name, shelf.in_short(name)) for name in shelf.NAMES]
