"""Files that come in and go out: cards, SillyTavern chats, chats to keep, whole characters. S9, S26

A file is the body of its request; what it is follows from what is in it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response, status

from coterie.cast.cards import TavernChat, export_card
from coterie.modes.story import ExportFormat, export_character, export_chat, import_tavern_chat
from coterie.surfaces.web.body import FILE_BODY, read_upload
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here
from coterie.surfaces.web.shapes import CharacterResponse, ChatResponse, ImportResponse

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
    "/bots/import",
    summary="Take in a character: a card (JSON, PNG, CHARX) or a whole character exported here",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_bot(house: Here, request: Request, name: Annotated[str, Query(max_length=200)] = "") -> ImportResponse:
    bot, notes = await house.arrivals.import_file(await read_upload(request), name)
    return ImportResponse(bot=CharacterResponse.of(bot), notes=notes)


@files_router.get("/bots/{bot}/export", summary="A character as a card, or whole with its memories as one file")
async def export_bot(house: Here, bot: str, kind: Annotated[BotFormat, Query(alias="format")] = "json") -> Response:
    found = house.roster.get(bot)
    if kind == "character":
        card = house.workspaces.card_with_files(found) if found.card is not None else None
        return _file(export_character(house.store, house.roster, found, card), kind, f"{found.id}.character.json")
    return _file(export_card(house.workspaces.card_with_files(found), kind).data, kind, f"{found.id}.{kind}")


@files_router.post(
    "/bots/{bot}/chats/import",
    summary="Take in a SillyTavern chat (JSONL) with its turns and swipes",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_chat(
    house: Here, bot: str, request: Request, title: Annotated[str, Query(max_length=200)] = ""
) -> ChatResponse:
    found = house.roster.get(bot)
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
