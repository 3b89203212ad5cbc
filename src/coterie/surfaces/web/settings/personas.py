"""The owner's personas: the API, their pictures, and the page."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Request, Response, status
from pydantic import Field
from starlette.exceptions import HTTPException

from coterie.base.values import Name, Prose, Text
from coterie.characters import UserPersona
from coterie.surfaces.web.shared.dependencies import (
    FILE_BODY,
    CharactersDep,
    PersonasDep,
    PicturesDep,
    read_upload,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.shared.messages import gettext
from coterie.surfaces.web.shared.prose import clean_line
from coterie.surfaces.web.shared.templates import PageRouter, page_response
from coterie.surfaces.web.story.schemas import DoneResponse, PersonaChoice, RequestModel, ResponseModel

router = APIRouter(prefix="/you/personas", tags=["you"], responses=ERROR_RESPONSES)


class PersonaRequest(RequestModel):
    name: Name
    pronouns: Annotated[Text, Field(max_length=200)] = ""
    about: Prose = ""


class PersonaResponse(ResponseModel):
    id: str
    name: str
    pronouns: str
    about: str
    picture: str
    """The address of its picture; empty if it has none."""
    is_default: bool
    """Whether new chats begin with it."""

    @classmethod
    def of(cls, persona: UserPersona) -> PersonaResponse:
        return cls(
            id=persona.id,
            name=persona.name,
            pronouns=persona.pronouns,
            about=persona.about,
            picture=picture_url(persona.picture),
            is_default=persona.is_default,
        )


def picture_url(picture: str) -> str:
    return f"/pictures/{picture}" if picture else ""


@router.get("", summary="The owner's personas")
async def list_personas(personas: PersonasDep) -> list[PersonaResponse]:
    return [PersonaResponse.of(persona) for persona in personas.all()]


@router.post("", summary="Create a persona", status_code=status.HTTP_201_CREATED)
async def create(personas: PersonasDep, body: PersonaRequest) -> PersonaResponse:
    return PersonaResponse.of(await personas.create(body.name, pronouns=body.pronouns, about=body.about))


@router.put("/default", summary="Choose the persona of new chats; empty for the profile")
async def choose_default(personas: PersonasDep, body: PersonaChoice) -> DoneResponse:
    await personas.choose_default(body.persona)
    return DoneResponse()


@router.put("/{persona}", summary="Change a persona")
async def change(personas: PersonasDep, persona: str, body: PersonaRequest) -> PersonaResponse:
    changed = replace(personas.get(persona), name=body.name, pronouns=body.pronouns, about=body.about)
    return PersonaResponse.of(await personas.save(changed))


@router.delete("/{persona}", summary="Delete a persona; chats that it was used in keep it")
async def delete(personas: PersonasDep, persona: str) -> DoneResponse:
    await personas.delete(persona)
    return DoneResponse()


@router.post("/{persona}/restore", summary="Restore a deleted persona")
async def restore(personas: PersonasDep, persona: str) -> PersonaResponse:
    return PersonaResponse.of(await personas.restore(persona))


@router.put("/{persona}/picture", summary="Set the picture of a persona", openapi_extra=FILE_BODY)
async def set_picture(personas: PersonasDep, pictures: PicturesDep, persona: str, request: Request) -> PersonaResponse:
    picture = await asyncio.to_thread(pictures.save, await read_upload(request))
    return PersonaResponse.of(await personas.save(replace(personas.get(persona), picture=picture)))


pictures_router = APIRouter(include_in_schema=False)


@pictures_router.get("/pictures/{picture}")
async def serve_picture(pictures: PicturesDep, picture: str) -> Response:
    found = await asyncio.to_thread(pictures.read, picture)
    if found is None or not found.media_type:
        raise HTTPException(404, "There is no such picture")
    headers = {"Cache-Control": "private, max-age=31536000, immutable"}
    return Response(found.data, media_type=found.media_type, headers=headers)


pages = PageRouter(prefix="/personas")


@pages.get("")
async def page(characters: CharactersDep, personas: PersonasDep, request: Request) -> Response:
    profile = ("", gettext("%(name)s (your profile)", name=clean_line(characters.owner().name)))
    return page_response(
        request,
        "settings/personas.html",
        here="/settings",
        chosen=personas.default(),
        choices=[profile, *((persona.id, clean_line(persona.name)) for persona in personas.all())],
        personas=[(persona, picture_url(persona.picture)) for persona in personas.all()],
    )
