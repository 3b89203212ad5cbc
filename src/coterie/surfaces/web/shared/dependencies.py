"""What the web needs to know of the rest of the house."""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Any, Protocol

from fastapi import Cookie, Depends, Request

from coterie.base.errors import CoterieError
from coterie.characters import Characters, People, Visits, Workspaces, check_size
from coterie.characters import Person as Known
from coterie.conversation import Feed
from coterie.eventstore import Store
from coterie.llm import Models
from coterie.memory import Memory
from coterie.modes.crowd import CrowdService
from coterie.modes.desk import DeskService
from coterie.modes.draft import Contributor, DraftService
from coterie.modes.story import CharacterImporter, StoryService
from coterie.ops import BackupService, SettingsEditor


class House(Protocol):
    store: Store
    characters: Characters
    people: People
    visits: Visits
    memory: Memory
    story: StoryService
    draft: DraftService
    crowd: CrowdService
    desk: DeskService
    workspaces: Workspaces
    character_importer: CharacterImporter
    feed: Feed
    models: Models
    settings_editor: SettingsEditor
    backups: BackupService

    @property
    def code_minutes(self) -> int:
        """How long a code that links an account can be used."""
        ...

    def healthy(self) -> bool: ...

    def metrics(self) -> bytes: ...

    def summary(self) -> list[tuple[str, str]]: ...


def _house(request: Request) -> House:
    house: House = request.app.state.house
    return house


Here = Annotated[House, Depends(_house)]
"""A route's way to the house."""


# Who acts in a document: whoever this browser was linked to, and otherwise you. F12, P3
#
# A link is a code that works once. The browser that used it holds a token; we hold its digest, as an account of the
# person on the surface `web`. Where there is no token, whoever could come in is the owner, as everywhere on the page.


SURFACE = "web"
PERSON_COOKIE = "coterie-person"


class NotLinked(CoterieError):
    """The browser's link was taken back."""

    http_status = 401


class OwnerOnly(CoterieError):
    """Somebody who was invited wants what only the owner may do."""

    http_status = 403


def person_of(house: House, token: str) -> Known:
    if not token:
        return house.people.find("owner")
    found = house.people.by_account(SURFACE, account_of(token))
    if found is None:
        raise NotLinked(
            "This browser is not linked to anybody any more.", "Ask for a new link, or go on as the owner at /join."
        )
    return found


def new_token() -> str:
    return secrets.token_urlsafe(24)


def account_of(token: str) -> str:
    return hashlib.sha256(f"coterie web {token}".encode()).hexdigest()[:32]


def _current_person(house: Here, token: Annotated[str, Cookie(alias=PERSON_COOKIE)] = "") -> Contributor:
    known = person_of(house, token)
    return Contributor(known.id, known.name)


CurrentPerson = Annotated[Contributor, Depends(_current_person)]


# A file as the body of a request, whatever content type it claims.


FILE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}
"""For the API's description."""


async def read_upload(request: Request) -> bytes:
    """The file, refused as soon as it is too large: a length that was announced may be a lie."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        check_size(size)
        parts.append(part)
    return b"".join(parts)
