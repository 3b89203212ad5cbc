"""The API for people and settings."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, status
from pydantic import Field

from coterie.base.values import Key, Name
from coterie.characters import EVERY_CHARACTER, ApiKey, OwnerProfile, PairingRequest, People, Person
from coterie.ops import Setting
from coterie.surfaces.web.shared.access import Confirmed, CurrentPerson
from coterie.surfaces.web.shared.dependencies import (
    ApiKeysDep,
    CharactersDep,
    LinkCodeMinutes,
    PeopleDep,
    SettingsEditorDep,
    VisitsDep,
)
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import (
    DoneResponse,
    OwnerRequest,
    OwnerResponse,
    RequestModel,
    ResponseModel,
)

# People: accounts, permissions, and the codes that link accounts


people_router = APIRouter(prefix="/people", tags=["people"], responses=ERROR_RESPONSES)


class AccountResponse(ResponseModel):
    surface: str
    account: str
    name: str


class ApiKeyResponse(ResponseModel):
    id: str
    name: str
    created: datetime
    key: str | None = None
    """The key itself, shown once when it is created; only its hash is stored."""

    @classmethod
    def of(cls, key: ApiKey, token: str | None = None) -> ApiKeyResponse:
        return cls(id=key.id, name=key.name, created=key.created, key=token)


class PersonResponse(ResponseModel):
    id: str
    name: str
    owner: bool
    may_talk: list[str]
    """Character ids; `*` is all."""
    accounts: list[AccountResponse]

    @classmethod
    def of(cls, people: People, person: Person) -> PersonResponse:
        accounts = [AccountResponse(surface=s, account=a, name=n) for s, a, n in people.identities(person.id)]
        allowed = people.allowed_characters(person.id)
        return cls(id=person.id, name=person.name, owner=person.is_owner, may_talk=allowed, accounts=accounts)


class AccessRequestResponse(ResponseModel):
    """An unknown account that asks for access."""

    surface: str
    account: str
    name: str
    code: str
    expires: datetime

    @classmethod
    def of(cls, body: PairingRequest) -> AccessRequestResponse:
        return cls(surface=body.surface, account=body.account, name=body.name, code=body.code, expires=body.expires)


class PeopleResponse(ResponseModel):
    people: list[PersonResponse]
    asking: list[AccessRequestResponse]


class LinkCodeResponse(ResponseModel):
    person: PersonResponse
    code: str
    """Shown once; only its hash is stored."""
    minutes: int


class InvitePersonRequest(RequestModel):
    name: Name


class ApiKeyRequest(RequestModel):
    name: Name
    """What the key is for."""


class ApproveRequest(RequestModel):
    code: Annotated[str, Field(max_length=40)]
    person: Key | None = None
    """An existing person; without it a new one is created."""
    character: Key = ""
    """The id of the character they may talk to, or `*` for all; if empty, none yet."""


class AllowRequest(RequestModel):
    character: Key
    """A character id, or `*` for all."""
    allowed: bool


class UnlinkRequest(RequestModel):
    surface: Key
    account: Annotated[str, Field(max_length=1_000)]


def people_overview(people: People) -> PeopleResponse:
    return PeopleResponse(
        people=[PersonResponse.of(people, person) for person in people.all()],
        asking=[AccessRequestResponse.of(one) for one in people.open_pairing_requests()],
    )


@people_router.get("", summary="People with their accounts and permissions, and open access requests")
async def people(people: PeopleDep) -> PeopleResponse:
    return people_overview(people)


@people_router.post(
    "", summary="Add a person; returns a code that links their account", status_code=status.HTTP_201_CREATED
)
async def invite(people: PeopleDep, code_minutes: LinkCodeMinutes, body: InvitePersonRequest) -> LinkCodeResponse:
    person, code = await people.invite(body.name, code_minutes)
    return LinkCodeResponse(person=PersonResponse.of(people, person), code=code, minutes=code_minutes)


@people_router.post("/{person}/code", summary="Issue a one-time code that links another account to a person")
async def code(people: PeopleDep, code_minutes: LinkCodeMinutes, person: str) -> LinkCodeResponse:
    who = people.person(person)
    issued = await people.issue_code(who.id, code_minutes)
    return LinkCodeResponse(person=PersonResponse.of(people, who), code=issued, minutes=code_minutes)


@people_router.get("/{person}/keys", summary="The API keys of a person")
async def keys(people: PeopleDep, api_keys: ApiKeysDep, person: str) -> list[ApiKeyResponse]:
    return [ApiKeyResponse.of(key) for key in api_keys.of_person(people.person(person).id)]


@people_router.post(
    "/{person}/keys",
    summary="Create an API key: who calls /v1 with it acts as the person; it is shown once",
    status_code=status.HTTP_201_CREATED,
)
async def create_key(api_keys: ApiKeysDep, person: str, body: ApiKeyRequest) -> ApiKeyResponse:
    key, token = await api_keys.create(person, body.name)
    return ApiKeyResponse.of(key, token)


@people_router.delete("/keys/{key}", summary="Revoke an API key: it gives no access from now on")
async def revoke_key(api_keys: ApiKeysDep, key: str) -> DoneResponse:
    await api_keys.revoke(key)
    return DoneResponse()


@people_router.put("/{person}/characters", summary="Allow or forbid a person to talk to a character")
async def allow(characters: CharactersDep, people: PeopleDep, person: str, body: AllowRequest) -> PersonResponse:
    who = people.person(person)
    character = body.character if body.character == EVERY_CHARACTER else characters.get(body.character).id
    await people.allow(who.id, character, body.allowed)
    return PersonResponse.of(people, who)


@people_router.post("/approve", summary="Approve an access request by its code")
async def approve(people: PeopleDep, characters: CharactersDep, body: ApproveRequest) -> PersonResponse:
    if body.character not in ("", "*"):
        characters.get(body.character)
    person, _ = await people.approve(body.code, body.person, body.character or None)
    return PersonResponse.of(people, person)


@people_router.post("/unlink", summary="Unlink an account", status_code=status.HTTP_204_NO_CONTENT)
async def unlink(people: PeopleDep, body: UnlinkRequest) -> None:
    await people.unlink(body.surface, body.account)


# The owner, as characters know them


owner_router = APIRouter(tags=["you"], responses=ERROR_RESPONSES)


@owner_router.get("/you", summary="The owner's profile")
async def you(characters: CharactersDep) -> OwnerResponse:
    return OwnerResponse.of(characters.owner(), characters.has_owner_profile())


@owner_router.put("/you", summary="Set the owner's profile")
async def set_owner(characters: CharactersDep, body: OwnerRequest) -> OwnerResponse:
    await characters.save_owner(OwnerProfile(name=body.name, pronouns=body.pronouns, persona=body.persona))
    return OwnerResponse.of(characters.owner(), authored=True)


@owner_router.post("/you/here", summary="Record a visit; what happens later is new on the home page")
async def record_visit(visits: VisitsDep, who: CurrentPerson) -> DoneResponse:
    await visits.record(who.id)
    return DoneResponse()


router = APIRouter(tags=["settings"], responses=ERROR_RESPONSES)


class SettingsResponse(ResponseModel):
    settings: list[Setting]
    restart_needed: bool
    """Whether a change takes effect only after a restart."""

    @classmethod
    def of(cls, settings: list[Setting]) -> SettingsResponse:
        return cls(settings=settings, restart_needed=any(setting.pending for setting in settings))


class SettingsRequest(RequestModel):
    changes: dict[str, Any]
    """Setting → value; null resets it to its default. A secret is given as `env:NAME` or `secret:NAME`. References and
    protected settings need a confirmation."""


@router.get("/settings", summary="All settings with value, description and origin; secrets are left out")
async def settings(settings_editor: SettingsEditorDep) -> SettingsResponse:
    return SettingsResponse.of(await asyncio.to_thread(settings_editor.settings))


@router.patch("/settings", summary="Change settings in the configuration file; all of them, or none if one is invalid")
async def change(settings_editor: SettingsEditorDep, confirmed: Confirmed, body: SettingsRequest) -> SettingsResponse:
    change = partial(settings_editor.change, body.changes, confirmed=confirmed)
    return SettingsResponse.of(await asyncio.to_thread(change))
