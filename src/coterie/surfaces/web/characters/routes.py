"""Characters: made, rewritten, looked at, started over. S1, S8, S25"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response, status
from starlette.exceptions import HTTPException

from coterie.base.ids import new_id
from coterie.characters import (
    STARTER_NAMES,
    Identity,
    TavernChat,
    export_card,
    read_portrait,
    starter_character,
    starter_summary,
)
from coterie.modes.story import (
    ExportFormat,
    Opening,
    OpeningProposal,
    export_character,
    export_chat,
    import_tavern_chat,
)
from coterie.surfaces.web.shared.dependencies import FILE_BODY, Here, House, read_upload
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import (
    CharacterRequest,
    CharacterResponse,
    CharacterWithVersions,
    ChatResponse,
    ConfirmRequest,
    DoneResponse,
    ImportResponse,
    ReadyMadeCharacter,
)

router = APIRouter(prefix="/characters", tags=["characters"], responses=ERROR_RESPONSES)


@router.get("", summary="All characters")
async def list_characters(house: Here) -> list[CharacterResponse]:
    return [CharacterResponse.of(bot) for bot in house.characters.all()]


@router.post("", summary="Make a character", status_code=status.HTTP_201_CREATED)
async def create_character(house: Here, told: CharacterRequest) -> CharacterResponse:
    return CharacterResponse.of(await house.character_importer.author(Identity(id=new_id(), **told.model_dump())))


@router.get("/ready", summary="Ready-made characters to pick from")
async def ready_made() -> list[ReadyMadeCharacter]:
    return [ReadyMadeCharacter(name=name, in_short=starter_summary(name)) for name in STARTER_NAMES]


@router.post("/ready/{name}", summary="Take in a ready-made character", status_code=status.HTTP_201_CREATED)
async def create_ready_made(house: Here, name: str) -> CharacterResponse:
    return CharacterResponse.of(await house.character_importer.author(starter_character(name)))


@router.get("/{bot}", summary="A character with every version of it")
async def show(house: Here, bot: str) -> CharacterWithVersions:
    versions = [CharacterResponse.of(version) for version in house.characters.versions(bot)]
    return CharacterWithVersions(**CharacterResponse.of(house.characters.get(bot)).model_dump(), versions=versions)


@router.put("/{bot}", summary="Write a character anew; chats that began keep the version they began with")
async def rewrite(house: Here, bot: str, told: CharacterRequest) -> CharacterResponse:
    house.characters.get(bot)
    return CharacterResponse.of(await house.character_importer.author(Identity(id=bot, **told.model_dump())))


@router.get("/{bot}/kickoff", summary="A proposal for the opening scene, to be corrected and confirmed")
async def propose(house: Here, bot: str) -> OpeningProposal:
    return await house.story.propose_opening(bot)


@router.post("/{bot}/kickoff", summary="Confirm the opening scene: a chat begins", status_code=status.HTTP_201_CREATED)
async def begin_chat(house: Here, bot: str, opening: Opening) -> ChatResponse:
    return ChatResponse.of(house, await house.story.begin(bot, opening))


@router.post("/{bot}/reset", summary="Start a character's life over; who it is stays")
async def reset(house: Here, bot: str, told: ConfirmRequest) -> CharacterResponse:
    await house.story.reset(bot, told.confirm)
    return CharacterResponse.of(house.characters.get(bot))


@router.post("/{bot}/delete", summary="Take a character out of the cast; its chats and its folder stay")
async def delete(house: Here, bot: str, told: ConfirmRequest) -> DoneResponse:
    await house.characters.delete(bot, told.confirm)
    return DoneResponse()


# Files that come in and go out: cards, SillyTavern chats, chats to keep, whole characters. S9, S26
#
# A file is the body of its request; what it is follows from what is in it.


files_router = APIRouter(tags=["files"], responses=ERROR_RESPONSES)
BotFormat = Literal["json", "png", "charx", "character"]
_TYPES = {
    "json": "application/json",
    "png": "image/png",
    "charx": "application/zip",
    "character": "application/json",
    "md": "text/markdown; charset=utf-8",
    "jsonl": "application/x-ndjson",
}


@files_router.post(
    "/characters/import",
    summary="Take in a character: a card (JSON, PNG, CHARX) or a whole character exported here",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_bot(house: Here, request: Request, name: Annotated[str, Query(max_length=200)] = "") -> ImportResponse:
    bot, notes = await house.character_importer.import_file(await read_upload(request), name)
    return ImportResponse(bot=CharacterResponse.of(bot), notes=notes)


@files_router.get("/characters/{bot}/export", summary="A character as a card, or whole with its memories as one file")
async def export_bot(house: Here, bot: str, kind: Annotated[BotFormat, Query(alias="format")] = "json") -> Response:
    found = house.characters.get(bot)
    if kind == "character":
        card = house.workspaces.card_with_files(found) if found.card is not None else None
        return _file(export_character(house.store, house.characters, found, card), kind, f"{found.id}.character.json")
    return _file(export_card(house.workspaces.card_with_files(found), kind).data, kind, f"{found.id}.{kind}")


@files_router.post(
    "/characters/{bot}/chats/import",
    summary="Take in a SillyTavern chat (JSONL) with its turns and swipes",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_chat(
    house: Here, bot: str, request: Request, title: Annotated[str, Query(max_length=200)] = ""
) -> ChatResponse:
    found = house.characters.get(bot)
    chat = TavernChat.read(await read_upload(request))
    made = await import_tavern_chat(house.story, house.store, house.memory, found, chat, title)
    return ChatResponse.of(house, made)


@files_router.get("/chats/{chat}/export", summary="A chat as Markdown, JSON or SillyTavern JSONL")
async def export(house: Here, chat: str, kind: Annotated[ExportFormat, Query(alias="format")] = "md") -> Response:
    found = house.story.chats.chat(f"room:{chat}")
    return _file(await export_chat(house.story, found.room, kind), kind, f"{found.id}.{kind}")


def _file(data: bytes, kind: str, name: str) -> Response:
    disposition = f'attachment; filename="{name}"'  # an id and an ending: nothing that a person typed
    return Response(data, media_type=_TYPES[kind], headers={"Content-Disposition": disposition})


# Portraits of characters, shown small beside their words.


portrait_router = APIRouter(include_in_schema=False)


def portrait_url(house: House, bot: str) -> str:
    """Where a character's picture is, or nothing if it has none. A new picture has a new address."""
    found = read_portrait(house.workspaces.folder(bot))
    return f"/characters/{bot}/portrait?of={found.version:x}" if found else ""


@portrait_router.get("/characters/{bot}/portrait")
async def serve_portrait(house: Here, bot: str) -> Response:
    found = read_portrait(house.workspaces.folder(house.characters.get(bot).id))
    if found is None:
        raise HTTPException(404, "This character has no portrait")
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(found.data, media_type=found.media_type, headers=headers)
