"""What the web needs to know of the rest of the house."""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import Depends, Request

from coterie.cast.people import PeopleDesk
from coterie.cast.roster import Roster
from coterie.cast.visits import VisitBook
from coterie.cast.workspace import Workspaces
from coterie.engine.feed import Feed
from coterie.kernel import Store
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.crowd import Hall
from coterie.modes.desk import Desk
from coterie.modes.draft import Drafting
from coterie.modes.story import Arrivals, Story
from coterie.ops.configuration import Configuration
from coterie.ops.copies import Copies


class House(Protocol):
    store: Store
    roster: Roster
    people: PeopleDesk
    visits: VisitBook
    memory: Memory
    story: Story
    draft: Drafting
    crowd: Hall
    desk: Desk
    workspaces: Workspaces
    arrivals: Arrivals
    feed: Feed
    models: Models
    configuration: Configuration
    copies: Copies

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
