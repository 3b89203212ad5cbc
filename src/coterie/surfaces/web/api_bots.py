"""Characters: made, rewritten, looked at, started over. S1, S8, S25"""

from __future__ import annotations

from fastapi import APIRouter, status

from coterie.base.ids import new_id
from coterie.cast import ready as shelf
from coterie.cast.identity import Identity
from coterie.modes.story import Opening, Proposal
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.shapes import BotShape, BotTaken, BotWithVersions, ChatShape, Confirm, Done, Ready

router = APIRouter(prefix="/bots", tags=["characters"], responses=TROUBLES)


@router.get("", summary="All characters")
async def bots(house: Here) -> list[BotShape]:
    return [BotShape.of(bot) for bot in house.roster.bots()]


@router.post("", summary="Make a character", status_code=status.HTTP_201_CREATED)
async def author(house: Here, told: BotTaken) -> BotShape:
    return BotShape.of(await house.arrivals.author(Identity(id=new_id(), **told.model_dump())))


@router.get("/ready", summary="Ready-made characters to pick from")
async def ready_made() -> list[Ready]:
    return [Ready(name=name, in_short=shelf.in_short(name)) for name in shelf.NAMES]


@router.post("/ready/{name}", summary="Take in a ready-made character", status_code=status.HTTP_201_CREATED)
async def take_ready(house: Here, name: str) -> BotShape:
    return BotShape.of(await house.arrivals.author(shelf.ready(name)))


@router.get("/{bot}", summary="A character with every version of it")
async def show(house: Here, bot: str) -> BotWithVersions:
    versions = [BotShape.of(version) for version in house.roster.versions(bot)]
    return BotWithVersions(**BotShape.of(house.roster.bot(bot)).model_dump(), versions=versions)


@router.put("/{bot}", summary="Write a character anew; chats that began keep the version they began with")
async def rewrite(house: Here, bot: str, told: BotTaken) -> BotShape:
    house.roster.bot(bot)
    return BotShape.of(await house.arrivals.author(Identity(id=bot, **told.model_dump())))


@router.get("/{bot}/kickoff", summary="A proposal for the opening scene, to be corrected and confirmed")
async def propose(house: Here, bot: str) -> Proposal:
    return await house.story.propose(bot)


@router.post("/{bot}/kickoff", summary="Confirm the opening scene: a chat begins", status_code=status.HTTP_201_CREATED)
async def kick_off(house: Here, bot: str, opening: Opening) -> ChatShape:
    return ChatShape.of(house, await house.story.begin(bot, opening))


@router.post("/{bot}/reset", summary="Start a character's life over; who it is stays")
async def reset(house: Here, bot: str, told: Confirm) -> BotShape:
    await house.story.reset(bot, told.confirm)
    return BotShape.of(house.roster.bot(bot))


@router.post("/{bot}/delete", summary="Take a character out of the cast; its chats and its folder stay")
async def delete(house: Here, bot: str, told: Confirm) -> Done:
    await house.roster.delete(bot, told.confirm)
    return Done()
