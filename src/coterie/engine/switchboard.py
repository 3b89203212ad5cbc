"""Joins surfaces, people, rooms and conversations: what app.py hands to every surface.

A surface attaches itself, hands over what comes in, and is given what goes out. What was left undone when the process
ended goes on once it is attached again.
"""

from __future__ import annotations

from coterie.base.clock import Clock
from coterie.cast.people import PeopleDesk
from coterie.cast.roster import Roster
from coterie.engine.agents import AgentRegistry
from coterie.engine.commands import Commands
from coterie.engine.conversation import Conversation
from coterie.engine.dispatcher import EventDispatcher
from coterie.engine.door import FrontDoor
from coterie.engine.inbox import Inbox
from coterie.engine.outbox import Outbox, queued_draft
from coterie.engine.postman import Postman
from coterie.engine.protocol import Lasting
from coterie.engine.questions import Questions
from coterie.engine.reception import Reception
from coterie.engine.rooms import SurfaceRooms
from coterie.engine.settings import SurfacesSettings
from coterie.engine.surface import Surface
from coterie.engine.talk import Talk
from coterie.kernel import Store, View


def views() -> list[View]:
    return [Inbox(), Outbox(), SurfaceRooms(), Questions()]


class Switchboard:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        roster: Roster,
        people: PeopleDesk,
        conversations: dict[str, Conversation],
        settings: SurfacesSettings,
        agents: AgentRegistry | None = None,
    ) -> None:
        self.surfaces: dict[str, Surface] = {}
        self.dispatcher = EventDispatcher()
        self.people = people
        self.talk = Talk(store, roster, people, conversations, settings, agents)
        self.postman = Postman(store, clock, self.surfaces)
        self._marks: dict[str, str] = {}
        door = FrontDoor(people, clock, settings, self._marks, self.talk.rooms)
        self.reception = Reception(store, clock, self.dispatcher, self.surfaces, self.postman, door, settings)
        self._store = store
        Commands(store, self.talk, self.surfaces, settings).register(self.dispatcher)

    def attach(self, surface: Surface) -> None:
        """From now on it is spoken to; what waits for it is taken up."""
        self.surfaces[surface.name] = surface
        self._marks[surface.name] = surface.abilities.mark
        self.reception.recover()
        self.postman.recover()

    def detach(self, surface: Surface) -> None:
        """What comes for it waits until it is back."""
        self.surfaces.pop(surface.name, None)

    async def notify(self, outgoing: Lasting, token: str) -> None:
        """Something nobody asked for: a finished task, a schedule's message. The token makes it once."""
        await self._store.append([queued_draft(token, outgoing)])
        self.postman.lanes.wake(outgoing.room)

    async def idle(self) -> None:
        """Until everything that came in is answered and delivered."""
        while self.reception.busy or self.postman.lanes.running:
            await self.reception.idle()
            await self.postman.lanes.idle()

    async def close(self) -> None:
        await self.reception.close()
        await self.postman.lanes.close()
