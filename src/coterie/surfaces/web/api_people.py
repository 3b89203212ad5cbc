"""People: who may talk with whom, from which accounts, and the codes that let them in. P3"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, status
from pydantic import Field

from coterie.cast.people import EVERY_CHARACTER, PairingRequest, Person
from coterie.surfaces.web.errors import ERROR_RESPONSES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import RequestModel, ResponseModel

router = APIRouter(prefix="/people", tags=["people"], responses=ERROR_RESPONSES)
_Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]


class AccountResponse(ResponseModel):
    surface: str
    account: str
    name: str


class PersonResponse(ResponseModel):
    id: str
    name: str
    owner: bool
    may_talk: list[str]
    """Characters by id; `*` is every one of them."""
    accounts: list[AccountResponse]

    @classmethod
    def of(cls, house: House, person: Person) -> PersonResponse:
        accounts = [AccountResponse(surface=s, account=a, name=n) for s, a, n in house.people.identities(person.id)]
        allowed = house.people.allowed_characters(person.id)
        return cls(id=person.id, name=person.name, owner=person.is_owner, may_talk=allowed, accounts=accounts)


class AccessRequestResponse(ResponseModel):
    """A stranger who waits to be let in."""

    surface: str
    account: str
    name: str
    code: str
    expires: datetime

    @classmethod
    def of(cls, one: PairingRequest) -> AccessRequestResponse:
        return cls(surface=one.surface, account=one.account, name=one.name, code=one.code, expires=one.expires)


class PeopleResponse(ResponseModel):
    people: list[PersonResponse]
    asking: list[AccessRequestResponse]


class LinkCodeResponse(ResponseModel):
    person: PersonResponse
    code: str
    """Told once; only a hash of it is kept."""
    minutes: int


class InvitePersonRequest(RequestModel):
    name: _Name


class ApproveRequest(RequestModel):
    code: Annotated[str, Field(max_length=40)]
    person: str | None = None
    """Somebody there is already; without it, somebody new."""


class AllowRequest(RequestModel):
    character: str
    """By id; `*` is every one of them."""
    allowed: bool


class UnlinkRequest(RequestModel):
    surface: str
    account: str


def people_overview(house: House) -> PeopleResponse:
    people = [PersonResponse.of(house, person) for person in house.people.all()]
    return PeopleResponse(
        people=people, asking=[AccessRequestResponse.of(one) for one in house.people.open_pairing_requests()]
    )


@router.get("", summary="Everybody with their accounts and whom they may talk with, and who waits to be let in")
async def people(house: Here) -> PeopleResponse:
    return people_overview(house)


@router.post("", summary="A new person, and the code with which they show up", status_code=status.HTTP_201_CREATED)
async def invite(house: Here, told: InvitePersonRequest) -> LinkCodeResponse:
    person, code = await house.people.invite(told.name.strip(), house.code_minutes)
    return LinkCodeResponse(person=PersonResponse.of(house, person), code=code, minutes=house.code_minutes)


@router.post("/{person}/code", summary="A code that links one more account to a person, once")
async def code(house: Here, person: str) -> LinkCodeResponse:
    who = house.people.person(person)
    told = await house.people.issue_code(who.id, house.code_minutes)
    return LinkCodeResponse(person=PersonResponse.of(house, who), code=told, minutes=house.code_minutes)


@router.put("/{person}/characters", summary="Say whether somebody may talk with a character")
async def allow(house: Here, person: str, told: AllowRequest) -> PersonResponse:
    who = house.people.person(person)
    character = told.character if told.character == EVERY_CHARACTER else house.roster.get(told.character).id
    await house.people.allow(who.id, character, told.allowed)
    return PersonResponse.of(house, who)


@router.post("/approve", summary="Let a stranger in who showed you their code")
async def approve(house: Here, told: ApproveRequest) -> PersonResponse:
    person, _ = await house.people.approve(told.code, told.person)
    return PersonResponse.of(house, person)


@router.post("/unlink", summary="Take an account from whoever it belongs to", status_code=status.HTTP_204_NO_CONTENT)
async def unlink(house: Here, told: UnlinkRequest) -> None:
    await house.people.unlink(told.surface, told.account)
