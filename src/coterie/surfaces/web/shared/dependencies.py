"""What routes depend on: the services they use, and an uploaded file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request

from coterie.characters import (
    ApiKeys,
    CharacterPictures,
    Characters,
    Lorebooks,
    People,
    Personas,
    PictureFiles,
    Visits,
    Workspaces,
    check_size,
)
from coterie.conversation import Feed
from coterie.eventstore import Store
from coterie.llm import Models
from coterie.memory import Memory
from coterie.messaging import Messenger
from coterie.modes.crowd import CrowdService
from coterie.modes.desk import DeskService
from coterie.modes.draft import DraftService
from coterie.modes.story import CharacterImporter, SillyTavernImporter, StoryService
from coterie.ops import BackupService, Health, ModelSetup, SettingsEditor


class Services(Protocol):
    """What `create_web` is given. Routes never see it: each declares the services that it uses."""

    store: Store
    characters: Characters
    lorebooks: Lorebooks
    personas: Personas
    pictures: PictureFiles
    character_pictures: CharacterPictures
    people: People
    api_keys: ApiKeys
    visits: Visits
    memory: Memory
    story: StoryService
    draft: DraftService
    crowd: CrowdService
    desk: DeskService
    workspaces: Workspaces
    character_importer: CharacterImporter
    sillytavern: SillyTavernImporter
    feed: Feed
    models: Models
    settings_editor: SettingsEditor
    model_setup: ModelSetup
    backups: BackupService
    messengers: dict[str, Messenger]

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
LorebooksDep = Annotated[Lorebooks, _service("lorebooks")]
PersonasDep = Annotated[Personas, _service("personas")]
PicturesDep = Annotated[PictureFiles, _service("pictures")]
CharacterPicturesDep = Annotated[CharacterPictures, _service("character_pictures")]
PeopleDep = Annotated[People, _service("people")]
ApiKeysDep = Annotated[ApiKeys, _service("api_keys")]
VisitsDep = Annotated[Visits, _service("visits")]
MemoryDep = Annotated[Memory, _service("memory")]
StoryDep = Annotated[StoryService, _service("story")]
DraftDep = Annotated[DraftService, _service("draft")]
CrowdDep = Annotated[CrowdService, _service("crowd")]
DeskDep = Annotated[DeskService, _service("desk")]
WorkspacesDep = Annotated[Workspaces, _service("workspaces")]
CharacterImporterDep = Annotated[CharacterImporter, _service("character_importer")]
SillyTavernDep = Annotated[SillyTavernImporter, _service("sillytavern")]
FeedDep = Annotated[Feed, _service("feed")]
ModelsDep = Annotated[Models, _service("models")]
SettingsEditorDep = Annotated[SettingsEditor, _service("settings_editor")]
ModelSetupDep = Annotated[ModelSetup, _service("model_setup")]
BackupsDep = Annotated[BackupService, _service("backups")]
MessengersDep = Annotated[Mapping[str, Messenger], _service("messengers")]
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
