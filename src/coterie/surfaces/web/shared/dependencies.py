"""What routes depend on: the services they use, and an uploaded file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from coterie.characters import Characters, People, Visits, Workspaces, check_size
from coterie.conversation import Feed
from coterie.eventstore import Store
from coterie.llm import Models
from coterie.memory import Memory
from coterie.modes.crowd import CrowdService
from coterie.modes.desk import DeskService
from coterie.modes.draft import DraftService
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
