"""The API for a character's pictures: expressions, of which one is shown by mood, and a gallery."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, status
from pydantic import Field

from coterie.characters import PictureUse
from coterie.surfaces.web.shared.dependencies import (
    FILE_BODY,
    CharacterPicturesDep,
    CharactersDep,
    PicturesDep,
    read_upload,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import DoneResponse, RequestModel, ResponseModel

router = APIRouter(prefix="/characters/{character_id}/pictures", tags=["characters"], responses=ERROR_RESPONSES)
_Name = Annotated[str, Query(max_length=100, description="The expression, such as `joy`; a title in the gallery.")]


class CharacterPictureRequest(RequestModel):
    use: PictureUse
    name: str = Field(default="", max_length=100)
    picture: str = Field(max_length=64)
    """The id of a picture that was uploaded before."""


class CharacterPictureResponse(ResponseModel):
    use: PictureUse
    name: str
    picture: str
    """Its id; it is shown at `/pictures/{id}`."""


@router.get("", summary="The expressions and the gallery of a character")
async def list_pictures(
    characters: CharactersDep, pictures: CharacterPicturesDep, character_id: str
) -> list[CharacterPictureResponse]:
    characters.get(character_id)
    uses: tuple[PictureUse, ...] = ("expression", "gallery")
    return [
        CharacterPictureResponse(use=use, name=one.name, picture=one.picture)
        for use in uses
        for one in await asyncio.to_thread(pictures.all, character_id, use)
    ]


@router.post(
    "/picture",
    summary="Upload an expression, or a picture for the gallery: PNG, JPEG or WebP",
    openapi_extra=FILE_BODY,
    status_code=status.HTTP_201_CREATED,
)
async def upload(
    characters: CharactersDep,
    pictures: CharacterPicturesDep,
    files: PicturesDep,
    request: Request,
    character_id: str,
    use: PictureUse,
    name: _Name = "",
) -> CharacterPictureResponse:
    characters.get(character_id)
    picture = await asyncio.to_thread(files.save, await read_upload(request))
    saved = await pictures.save(character_id, use, name, picture)
    return CharacterPictureResponse(use=use, name=saved.name, picture=saved.picture)


@router.post("", summary="Add a picture that was uploaded before, or restore one", status_code=201)
async def add(
    characters: CharactersDep, pictures: CharacterPicturesDep, character_id: str, body: CharacterPictureRequest
) -> CharacterPictureResponse:
    characters.get(character_id)
    saved = await pictures.save(character_id, body.use, body.name, body.picture)
    return CharacterPictureResponse(use=body.use, name=saved.name, picture=saved.picture)


@router.delete("/{use}/{name}", summary="Remove a picture; its file stays for chats that show it")
async def remove(
    characters: CharactersDep, pictures: CharacterPicturesDep, character_id: str, use: PictureUse, name: str
) -> DoneResponse:
    characters.get(character_id)
    await pictures.remove(character_id, use, name)
    return DoneResponse()
