"""What routes depend on: the services they use, the person who asks, and an uploaded file."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from typing import Annotated, Any, Protocol

from fastapi import Cookie, Depends, Request

from coterie.base.errors import CoterieError
from coterie.characters import Characters, People, Person, Visits, Workspaces, check_size
from coterie.conversation import Feed
from coterie.eventstore import Store
from coterie.llm import Models
from coterie.memory import Memory
from coterie.modes.crowd import CrowdService
from coterie.modes.desk import DeskService
from coterie.modes.draft import Contributor, DraftService
from coterie.modes.story import CharacterImporter, StoryService
from coterie.ops import BackupService, Health, SettingsEditor


class Services(Protocol):
    """What `create_web` is given. Routes never see it: each declares the services that it uses."""

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
    def code_minutes(self) -> int: ...

    def health(self) -> Health: ...

    def metrics(self) -> bytes: ...

    def summary(self) -> list[tuple[str, str]]: ...


def _service(name: str) -> Any:
    # Asynchronous, although it waits for nothing: FastAPI runs other dependencies in a thread each.
    async def provide(request: Request) -> Any:
        return getattr(request.app.state.services, name)

    return Depends(provide)


StoreDep = Annotated[Store, _service("store")]
CharactersDep = Annotated[Characters, _service("characters")]
PeopleDep = Annotated[People, _service("people")]
VisitsDep = Annotated[Visits, _service("visits")]
MemoryDep = Annotated[Memory, _service("memory")]
StoryDep = Annotated[StoryService, _service("story")]
DraftDep = Annotated[DraftService, _service("draft")]
CrowdDep = Annotated[CrowdService, _service("crowd")]
DeskDep = Annotated[DeskService, _service("desk")]
WorkspacesDep = Annotated[Workspaces, _service("workspaces")]
CharacterImporterDep = Annotated[CharacterImporter, _service("character_importer")]
FeedDep = Annotated[Feed, _service("feed")]
ModelsDep = Annotated[Models, _service("models")]
SettingsEditorDep = Annotated[SettingsEditor, _service("settings_editor")]
BackupsDep = Annotated[BackupService, _service("backups")]
LinkCodeMinutes = Annotated[int, _service("code_minutes")]
"""How long a code that links an account can be used."""
HealthCheck = Annotated[Callable[[], Health], _service("health")]
Summary = Annotated[Callable[[], list[tuple[str, str]]], _service("summary")]
"""Version, data folder and the like, as labelled rows."""


# The person who acts: the one this browser is linked to, otherwise the owner. A link is a code that works once; the
# browser that used it holds a token, and its digest is stored as an account of the person on this surface.


SURFACE = "web"
PERSON_COOKIE = "coterie-person"


class NotLinked(CoterieError):
    """The browser's link was removed."""

    http_status = 401


class OwnerOnly(CoterieError):
    """An invited person asks for what only the owner may do."""

    http_status = 403


def find_person(people: People, token: str) -> Person:
    """The person with a browser's token; the owner for a browser without one."""
    if not token:
        return people.find("owner")
    person = people.by_account(SURFACE, account_of(token))
    if person is None:
        raise NotLinked(
            "This browser is no longer linked to a person.", "Ask for a new link, or continue as the owner at /join."
        )
    return person


def new_token() -> str:
    return secrets.token_urlsafe(24)


def account_of(token: str) -> str:
    return hashlib.sha256(f"coterie web {token}".encode()).hexdigest()[:32]


async def _current_person(people: PeopleDep, token: Annotated[str, Cookie(alias=PERSON_COOKIE)] = "") -> Contributor:
    person = find_person(people, token)
    return Contributor(person.id, person.name)


CurrentPerson = Annotated[Contributor, Depends(_current_person)]


FILE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/octet-stream": {}}}}
"""Describes a route that takes a file as its body, for OpenAPI."""


async def read_upload(request: Request) -> bytes:
    """The body, whatever content type it claims; refused as soon as it is too large, even if the length was not."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        check_size(size)
        parts.append(part)
    return b"".join(parts)
