"""The home page: what happened while one was away, what there is in every mode, and who is here. S10"""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response, status
from fastapi.responses import RedirectResponse

from coterie.surfaces.web.away import news
from coterie.surfaces.web.draft_person import Who
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.latest import modes
from coterie.surfaces.web.paper import page
from coterie.surfaces.web.portraits import portrait
from coterie.surfaces.web.typeset import harmless

router = APIRouter(include_in_schema=False)
_FACES = 12


@dataclass(frozen=True)
class Face:
    id: str
    name: str
    portrait: str


@router.head("/")
@router.get("/")
async def home(house: Here, request: Request, who: Who) -> Response:
    """Whoever is new says who they are, then meets somebody; whoever comes back is home."""
    if not house.roster.knows_you():
        return RedirectResponse("/settings", status.HTTP_303_SEE_OTHER)
    bots = house.roster.bots()
    if not bots:
        return RedirectResponse("/bots/new", status.HTTP_303_SEE_OTHER)
    since = house.visits.last_there(who.id)
    return page(
        request,
        "home.html",
        you=harmless(who.name),
        since=since,
        news=await news(house, who, since),
        modes=await modes(house),
        faces=[_face(house, bot.id, bot.name) for bot in bots[:_FACES]],
        others=max(0, len(bots) - _FACES),
    )


def _face(house: House, bot: str, name: str) -> Face:
    return Face(bot, harmless(name), portrait(house, bot))
