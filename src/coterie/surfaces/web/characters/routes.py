"""The API for characters: create, edit, begin a chat, reset, delete, and import and export of files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response, status
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from coterie.base.ids import new_id
from coterie.characters import (
    STARTER_NAMES,
    Identity,
    Workspaces,
    export_card,
    portrait_version,
    read_portrait,
    starter_character,
    starter_portrait,
    starter_summary,
)
from coterie.modes.story import (
    ExportFormat,
    OpeningProposal,
    export_character,
    export_chat,
    import_tavern_chat,
    read_tavern_chat,
)
from coterie.surfaces.web.shared.dependencies import (
    FILE_BODY,
    CharacterImporterDep,
    CharactersDep,
    MemoryDep,
    Services,
    StoreDep,
    StoryDep,
    WorkspacesDep,
    read_upload,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.prose import clean_line
from coterie.surfaces.web.shared.templates import find_portrait
from coterie.surfaces.web.story.schemas import (
    CharacterRequest,
    CharacterResponse,
    CharacterWithVersions,
    ChatResponse,
    ConfirmRequest,
    DoneResponse,
    ImportResponse,
    OpeningRequest,
    ReadyMadeCharacter,
)

router = APIRouter(prefix="/characters", tags=["characters"], responses=ERROR_RESPONSES)


@router.get("", summary="All characters")
async def list_characters(characters: CharactersDep) -> list[CharacterResponse]:
    return [CharacterResponse.of(character) for character in characters.all()]


@router.post("", summary="Create a character", status_code=status.HTTP_201_CREATED)
async def create_character(character_importer: CharacterImporterDep, body: CharacterRequest) -> CharacterResponse:
    return CharacterResponse.of(await character_importer.author(Identity(id=new_id(), **body.model_dump())))


@router.get("/ready", summary="Ready-made characters to pick from")
async def ready_made() -> list[ReadyMadeCharacter]:
    return [ReadyMadeCharacter(name=name, in_short=starter_summary(name)) for name in STARTER_NAMES]


@router.post("/ready/{name}", summary="Add a ready-made character", status_code=status.HTTP_201_CREATED)
async def create_ready_made(character_importer: CharacterImporterDep, name: str) -> CharacterResponse:
    return CharacterResponse.of(await character_importer.author(starter_character(name)))


@router.get("/{character_id}", summary="A character with all its versions")
async def show(characters: CharactersDep, character_id: str) -> CharacterWithVersions:
    versions = [CharacterResponse.of(version) for version in characters.versions(character_id)]
    return CharacterWithVersions(**CharacterResponse.of(characters.get(character_id)).model_dump(), versions=versions)


@router.put("/{character_id}", summary="Edit a character; existing chats keep their version")
async def rewrite(
    characters: CharactersDep, character_importer: CharacterImporterDep, character_id: str, body: CharacterRequest
) -> CharacterResponse:
    characters.get(character_id)
    return CharacterResponse.of(await character_importer.author(Identity(id=character_id, **body.model_dump())))


@router.get("/{character_id}/kickoff", summary="A proposal for the opening scene, to be corrected and confirmed")
async def propose(story: StoryDep, character_id: str) -> OpeningProposal:
    return await story.propose_opening(character_id)


@router.post(
    "/{character_id}/kickoff", summary="Confirm the opening scene: a chat begins", status_code=status.HTTP_201_CREATED
)
async def begin_chat(store: StoreDep, story: StoryDep, character_id: str, opening: OpeningRequest) -> ChatResponse:
    return ChatResponse.of(store, story, await story.begin(character_id, opening))


@router.put("/{character_id}/picture", summary="Set a character's portrait, a PNG", openapi_extra=FILE_BODY)
async def set_portrait(
    characters: CharactersDep, workspaces: WorkspacesDep, character_id: str, request: Request
) -> DoneResponse:
    character, data = characters.get(character_id), await read_upload(request)
    await asyncio.to_thread(workspaces.set_portrait, character, data)
    return DoneResponse()


@router.post("/{character_id}/reset", summary="Reset a character: its chats, memories and relationships")
async def reset(
    characters: CharactersDep, story: StoryDep, character_id: str, body: ConfirmRequest
) -> CharacterResponse:
    await story.reset(character_id, body.confirm)
    return CharacterResponse.of(characters.get(character_id))


@router.post("/{character_id}/reset/undo", summary="Undo the last reset of a character, in all chats")
async def undo_reset(characters: CharactersDep, story: StoryDep, character_id: str) -> CharacterResponse:
    await story.undo_reset(character_id)
    return CharacterResponse.of(characters.get(character_id))


@router.post("/{character_id}/delete", summary="Delete a character; its chats and its folder stay")
async def delete(characters: CharactersDep, character_id: str, body: ConfirmRequest) -> DoneResponse:
    await characters.delete(character_id, body.confirm)
    return DoneResponse()


# Import and export. A file is the body of its request; its format is detected from its content.


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


def _file_responses(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Describes a route that returns one of these kinds of file, for OpenAPI."""
    return {200: {"description": "The file.", "content": {_TYPES[kind]: {} for kind in kinds}}}


@files_router.post(
    "/characters/import",
    summary="Import a character: a card (JSON, PNG, CHARX) or a character exported here",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_character(
    character_importer: CharacterImporterDep, request: Request, name: Annotated[str, Query(max_length=200)] = ""
) -> ImportResponse:
    character, notes = await character_importer.import_file(await read_upload(request), name)
    return ImportResponse(character=CharacterResponse.of(character), notes=notes)


@files_router.get(
    "/characters/{character_id}/export",
    summary="A character as a card, or with its memories as one file",
    response_class=Response,
    responses=_file_responses("json", "png", "charx"),
)
async def export_character_file(
    store: StoreDep,
    characters: CharactersDep,
    workspaces: WorkspacesDep,
    character_id: str,
    kind: Annotated[BotFormat, Query(alias="format")] = "json",
) -> Response:
    character = characters.get(character_id)

    def export() -> bytes:
        if kind == "character":
            card = workspaces.card_with_files(character) if character.card is not None else None
            return export_character(store, characters, character, card)
        return export_card(workspaces.card_with_files(character), kind).data

    # In a thread: a card may have a hundred megabytes of pictures and files.
    name = f"{character.name}.character.json" if kind == "character" else f"{character.name}.{kind}"
    return _file(await asyncio.to_thread(export), kind, name)


@files_router.post(
    "/characters/{character_id}/chats/import",
    summary="Import a SillyTavern chat (JSONL) with its turns and swipes",
    status_code=status.HTTP_201_CREATED,
    openapi_extra=FILE_BODY,
)
async def import_chat(
    store: StoreDep,
    characters: CharactersDep,
    memory: MemoryDep,
    story: StoryDep,
    character_id: str,
    request: Request,
    title: Annotated[str, Query(max_length=200)] = "",
) -> ChatResponse:
    character = characters.get(character_id)
    chat = await read_tavern_chat(await read_upload(request))
    imported = await import_tavern_chat(story, store, memory, character, chat, title)
    return ChatResponse.of(store, story, imported)


@files_router.get(
    "/chats/{chat}/export",
    summary="A chat as Markdown, JSON or SillyTavern JSONL",
    response_class=Response,
    responses=_file_responses("md", "json", "jsonl"),
)
async def export(story: StoryDep, chat: str, kind: Annotated[ExportFormat, Query(alias="format")] = "md") -> Response:
    story_chat = story.chats.chat(f"room:{chat}")
    return _file(await export_chat(story, story_chat.room, kind), kind, f"{story_chat.title}.{kind}")


def _file(data: bytes, kind: str, name: str) -> Response:
    plain = re.sub(r"[^A-Za-z0-9._ -]+", "_", name).strip(" ._") or "export"
    full = quote(clean_line(name).replace("/", "_"), safe="")
    disposition = f"attachment; filename=\"{plain}\"; filename*=UTF-8''{full}"  # RFC 6266
    return Response(data, media_type=_TYPES[kind], headers={"Content-Disposition": disposition})


# Portraits


portrait_router = APIRouter(include_in_schema=False)
_PORTRAIT_HEADERS = {
    "Cache-Control": "private, max-age=31536000, immutable",
    # A drawing that is opened on its own runs and loads nothing.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}


def portrait_url(workspaces: Workspaces, character_id: str) -> str:
    """The address of a character's portrait, empty if it has none; a new portrait has a new address."""
    version = portrait_version(workspaces.folder(character_id))
    return f"/characters/{character_id}/portrait?of={version:x}" if version is not None else ""


class PortraitMiddleware:
    """Lets templates find portraits by the name of a character. Guests see initials: portraits are not shared."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("state", {}).get("shares") is not None:
            await self._app(scope, receive, send)
            return
        token = find_portrait.set(self._lookup())
        try:
            await self._app(scope, receive, send)
        finally:
            find_portrait.reset(token)

    def _lookup(self) -> Callable[[str], str]:
        @cache
        def ids() -> dict[str, str]:
            return {clean_line(one.name): one.id for one in reversed(self._services.characters.all())}

        @cache
        def url(name: str) -> str:
            character = ids().get(clean_line(name))
            return portrait_url(self._services.workspaces, character) if character else ""

        return url


@portrait_router.get("/characters/{character_id}/portrait")
async def serve_portrait(characters: CharactersDep, workspaces: WorkspacesDep, character_id: str) -> Response:
    portrait = await asyncio.to_thread(read_portrait, workspaces.folder(characters.get(character_id).id))
    if portrait is None:
        raise HTTPException(404, "This character has no portrait")
    headers = dict(_PORTRAIT_HEADERS)
    if not portrait.is_drawing:
        del headers["Content-Security-Policy"]
    return Response(portrait.data, media_type=portrait.media_type, headers=headers)


@portrait_router.get("/characters/ready/{name}/portrait")
async def serve_starter_portrait(name: str) -> Response:
    if name not in STARTER_NAMES:
        raise HTTPException(404, "There is no such ready-made character")
    return Response(
        starter_portrait(name),
        media_type="image/svg+xml",
        headers={**_PORTRAIT_HEADERS, "Cache-Control": "private, max-age=3600"},
    )
