"""You, as characters know you. S2"""

from __future__ import annotations

from fastapi import APIRouter

from coterie.cast.roster import You
from coterie.surfaces.web.draft_person import Who
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.shapes import Done, YouShape, YouTaken

owner_router = APIRouter(tags=["you"], responses=TROUBLES)


@owner_router.get("/you", summary="Who you are to the characters")
async def you(house: Here) -> YouShape:
    return YouShape.of(house.roster.you(), house.roster.knows_you())


@owner_router.put("/you", summary="Say who you are")
async def author_you(house: Here, told: YouTaken) -> YouShape:
    await house.roster.author_you(You(name=told.name, pronouns=told.pronouns, persona=told.persona))
    return YouShape.of(house.roster.you(), authored=True)


@owner_router.post("/you/here", summary="You are looking at a page: what happens after it is news")
async def here(house: Here, who: Who) -> Done:
    await house.visits.note(who.id)
    return Done()
