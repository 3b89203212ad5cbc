"""What the web needs to know of the rest of the house."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import Depends, Request

from coterie.cast.people import People
from coterie.cast.roster import Characters
from coterie.cast.visits import Visits
from coterie.cast.workspace import Workspaces
from coterie.engine.feed import Feed
from coterie.kernel import Store
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.crowd import CrowdService
from coterie.modes.desk import DeskService
from coterie.modes.draft import DraftService
from coterie.modes.story import CharacterImporter, StoryService
from coterie.ops.configuration import SettingsEditor
from coterie.ops.copies import BackupService


class House(Protocol):
    store: Store
    roster: Characters
    people: People
    visits: Visits
    memory: Memory
    story: StoryService
    draft: DraftService
    crowd: CrowdService
    desk: DeskService
    workspaces: Workspaces
    arrivals: CharacterImporter
    feed: Feed
    models: Models
    configuration: SettingsEditor
    copies: BackupService

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
