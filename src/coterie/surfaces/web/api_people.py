"""People: who may talk with whom, from which accounts, and the codes that let them in. P3"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, status
from pydantic import Field

from coterie.cast.people import EVERYBODY, Asking, Person
from coterie.surfaces.web.errors import TROUBLES
from coterie.surfaces.web.house import Here, House
from coterie.surfaces.web.shapes import Given, Taken

router = APIRouter(prefix="/people", tags=["people"], responses=TROUBLES)
_Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S")]


class AccountShape(Given):
    surface: str
    account: str
    name: str


class PersonShape(Given):
    id: str
    name: str
    owner: bool
    may_talk: list[str]
    """Characters by id; `*` is every one of them."""
    accounts: list[AccountShape]

    @classmethod
    def of(cls, house: House, person: Person) -> PersonShape:
        accounts = [AccountShape(surface=s, account=a, name=n) for s, a, n in house.people.identities(person.id)]
        allowed = house.people.allowed(person.id)
        return cls(id=person.id, name=person.name, owner=person.is_owner, may_talk=allowed, accounts=accounts)


class AskingShape(Given):
    """A stranger who waits to be let in."""

    surface: str
    account: str
    name: str
    code: str
    expires: datetime

    @classmethod
    def of(cls, one: Asking) -> AskingShape:
        return cls(surface=one.surface, account=one.account, name=one.name, code=one.code, expires=one.expires)


class PeopleShape(Given):
    people: list[PersonShape]
    asking: list[AskingShape]


class CodeShape(Given):
    person: PersonShape
    code: str
    """Told once; only a hash of it is kept."""
    minutes: int


class Invited(Taken):
    name: _Name


class Approved(Taken):
    code: Annotated[str, Field(max_length=40)]
    person: str | None = None
    """Somebody there is already; without it, somebody new."""


class Allowed(Taken):
    character: str
    """By id; `*` is every one of them."""
    allowed: bool


class Unlinked(Taken):
    surface: str
    account: str


def everybody(house: House) -> PeopleShape:
    people = [PersonShape.of(house, person) for person in house.people.everybody()]
    return PeopleShape(people=people, asking=[AskingShape.of(one) for one in house.people.waiting()])


@router.get("", summary="Everybody with their accounts and whom they may talk with, and who waits to be let in")
async def people(house: Here) -> PeopleShape:
    return everybody(house)


@router.post("", summary="A new person, and the code with which they show up", status_code=status.HTTP_201_CREATED)
async def invite(house: Here, told: Invited) -> CodeShape:
    person, code = await house.people.invite(told.name.strip(), house.code_minutes)
    return CodeShape(person=PersonShape.of(house, person), code=code, minutes=house.code_minutes)


@router.post("/{person}/code", summary="A code that links one more account to a person, once")
async def code(house: Here, person: str) -> CodeShape:
    who = house.people.person(person)
    told = await house.people.code_for(who.id, house.code_minutes)
    return CodeShape(person=PersonShape.of(house, who), code=told, minutes=house.code_minutes)


@router.put("/{person}/characters", summary="Say whether somebody may talk with a character")
async def allow(house: Here, person: str, told: Allowed) -> PersonShape:
    who = house.people.person(person)
    character = told.character if told.character == EVERYBODY else house.roster.bot(told.character).id
    await house.people.allow(who.id, character, told.allowed)
    return PersonShape.of(house, who)


@router.post("/approve", summary="Let a stranger in who showed you their code")
async def approve(house: Here, told: Approved) -> PersonShape:
    person, _ = await house.people.approve(told.code, told.person)
    return PersonShape.of(house, person)


@router.post("/unlink", summary="Take an account from whoever it belongs to", status_code=status.HTTP_204_NO_CONTENT)
async def unlink(house: Here, told: Unlinked) -> None:
    await house.people.unlink(told.surface, told.account)
