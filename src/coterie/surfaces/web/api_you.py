"""You, as characters know you. S2"""

from __future__ import annotations

from fastapi import APIRouter

from coterie.cast.roster import OwnerProfile
from coterie.surfaces.web.draft_person import CurrentPerson
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.shapes import DoneResponse, OwnerRequest, OwnerResponse

owner_router = APIRouter(tags=["you"], responses=ERROR_RESPONSES)


@owner_router.get("/you", summary="Who you are to the characters")
async def you(house: Here) -> OwnerResponse:
    return OwnerResponse.of(house.roster.owner(), house.roster.has_owner_profile())


@owner_router.put("/you", summary="Say who you are")
async def set_owner(house: Here, told: OwnerRequest) -> OwnerResponse:
    await house.roster.save_owner(OwnerProfile(name=told.name, pronouns=told.pronouns, persona=told.persona))
    return OwnerResponse.of(house.roster.owner(), authored=True)


@owner_router.post("/you/here", summary="You are looking at a page: what happens after it is news")
async def record_visit(house: Here, who: CurrentPerson) -> DoneResponse:
    await house.visits.record(who.id)
    return DoneResponse()
