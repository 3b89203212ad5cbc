"""The home page: what happened while one was away, what there is in every mode, and who is here. S10"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response, status
from fastapi.responses import RedirectResponse

from coterie.surfaces.web.away import inbox_items
from coterie.surfaces.web.draft_person import CurrentPerson
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.latest import mode_overviews
from coterie.surfaces.web.paper import page_response
from coterie.surfaces.web.portraits import portrait_url
from coterie.surfaces.web.typeset import clean_line

router = APIRouter(include_in_schema=False)
_FACES = 12


@dataclass(frozen=True)
class CharacterLink:
    id: str
    name: str
    portrait: str


@router.head("/")
@router.get("/")
async def home(house: Here, request: Request, who: CurrentPerson) -> Response:
    """Whoever is new says who they are, then meets somebody; whoever comes back is home."""
    if not house.roster.has_owner_profile():
        return RedirectResponse("/settings", status.HTTP_303_SEE_OTHER)
    bots = house.roster.all()
    if not bots:
        return RedirectResponse("/bots/new", status.HTTP_303_SEE_OTHER)
    since = house.visits.previous_visit_end(who.id)
    return page_response(
        request,
        "home.html",
        you=clean_line(who.name),
        since=since,
        news=await inbox_items(house, who, since),
        modes=await mode_overviews(house),
        faces=[_character_link(house, bot.id, bot.name) for bot in bots[:_FACES]],
        others=max(0, len(bots) - _FACES),
    )


def _character_link(house: House, bot: str, name: str) -> CharacterLink:
    return CharacterLink(bot, clean_line(name), portrait_url(house, bot))
