"""Characters: made, rewritten, looked at, started over. S1, S8, S25"""

from __future__ import annotations

from fastapi import APIRouter, status

from coterie.base.ids import new_id
from coterie.cast import ready as shelf
from coterie.cast.identity import Identity
from coterie.modes.story import Opening, OpeningProposal
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.shapes import (
    CharacterRequest,
    CharacterResponse,
    CharacterWithVersions,
    ChatResponse,
    ConfirmRequest,
    DoneResponse,
    ReadyMadeCharacter,
)

router = APIRouter(prefix="/bots", tags=["characters"], responses=ERROR_RESPONSES)


@router.get("", summary="All characters")
async def list_characters(house: Here) -> list[CharacterResponse]:
    return [CharacterResponse.of(bot) for bot in house.roster.all()]


@router.post("", summary="Make a character", status_code=status.HTTP_201_CREATED)
async def create_character(house: Here, told: CharacterRequest) -> CharacterResponse:
    return CharacterResponse.of(await house.arrivals.author(Identity(id=new_id(), **told.model_dump())))


@router.get("/ready", summary="Ready-made characters to pick from")
async def ready_made() -> list[ReadyMadeCharacter]:
    return [ReadyMadeCharacter(name=name, in_short=shelf.summary(name)) for name in shelf.NAMES]


@router.post("/ready/{name}", summary="Take in a ready-made character", status_code=status.HTTP_201_CREATED)
async def create_ready_made(house: Here, name: str) -> CharacterResponse:
    return CharacterResponse.of(await house.arrivals.author(shelf.starter_character(name)))


@router.get("/{bot}", summary="A character with every version of it")
async def show(house: Here, bot: str) -> CharacterWithVersions:
    versions = [CharacterResponse.of(version) for version in house.roster.versions(bot)]
    return CharacterWithVersions(**CharacterResponse.of(house.roster.get(bot)).model_dump(), versions=versions)


@router.put("/{bot}", summary="Write a character anew; chats that began keep the version they began with")
async def rewrite(house: Here, bot: str, told: CharacterRequest) -> CharacterResponse:
    house.roster.get(bot)
    return CharacterResponse.of(await house.arrivals.author(Identity(id=bot, **told.model_dump())))


@router.get("/{bot}/kickoff", summary="A proposal for the opening scene, to be corrected and confirmed")
async def propose(house: Here, bot: str) -> OpeningProposal:
    return await house.story.propose_opening(bot)


@router.post("/{bot}/kickoff", summary="Confirm the opening scene: a chat begins", status_code=status.HTTP_201_CREATED)
async def begin_chat(house: Here, bot: str, opening: Opening) -> ChatResponse:
    return ChatResponse.of(house, await house.story.begin(bot, opening))


@router.post("/{bot}/reset", summary="Start a character's life over; who it is stays")
async def reset(house: Here, bot: str, told: ConfirmRequest) -> CharacterResponse:
    await house.story.reset(bot, told.confirm)
    return CharacterResponse.of(house.roster.get(bot))


@router.post("/{bot}/delete", summary="Take a character out of the cast; its chats and its folder stay")
async def delete(house: Here, bot: str, told: ConfirmRequest) -> DoneResponse:
    await house.roster.delete(bot, told.confirm)
    return DoneResponse()
