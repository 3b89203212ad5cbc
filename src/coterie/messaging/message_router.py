"""Joins surfaces, people, rooms and conversations: what app.py hands to every surface.

A surface attaches itself, hands over what comes in, and is given what goes out. What was left undone when the process
ended goes on once it is attached again.
"""

from __future__ import annotations

from coterie.base.clock import Clock
from coterie.characters.people import People
from coterie.characters.service import Characters
from coterie.eventstore import Projection, Store
from coterie.messaging.agents import AgentRegistry
from coterie.messaging.commands import Commands
from coterie.messaging.confirmations import ConfirmationsProjection
from coterie.messaging.delivery import DeliveryWorker
from coterie.messaging.inbound import InboundProcessor
from coterie.messaging.inbox import InboxProjection
from coterie.messaging.outbox import OutboxProjection, queued_event
from coterie.messaging.permissions import Permissions
from coterie.messaging.ports import Conversation, Surface
from coterie.messaging.protocol import Deliverable
from coterie.messaging.rooms import RoomsProjection
from coterie.messaging.routing import ChatRouter, MessageDispatcher
from coterie.messaging.settings import SurfacesSettings


def projections() -> list[Projection]:
    return [InboxProjection(), OutboxProjection(), RoomsProjection(), ConfirmationsProjection()]


class MessageRouter:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        characters: Characters,
        people: People,
        conversations: dict[str, Conversation],
        settings: SurfacesSettings,
        agents: AgentRegistry | None = None,
    ) -> None:
        self.surfaces: dict[str, Surface] = {}
        self.dispatcher = MessageDispatcher()
        self.people = people
        self.chats = ChatRouter(store, characters, people, conversations, settings, agents)
        self.delivery = DeliveryWorker(store, clock, self.surfaces)
        self._marks: dict[str, str] = {}
        door = Permissions(people, clock, settings, self._marks, self.chats.rooms)
        self.inbound = InboundProcessor(store, clock, self.dispatcher, self.surfaces, self.delivery, door, settings)
        self._store = store
        Commands(store, self.chats, self.surfaces, settings).register(self.dispatcher)

    def attach(self, surface: Surface) -> None:
        """From now on it is spoken to; what waits for it is taken up."""
        self.surfaces[surface.name] = surface
        self._marks[surface.name] = surface.capabilities.command_prefix
        self.inbound.recover()
        self.delivery.recover()

    def detach(self, surface: Surface) -> None:
        """What comes for it waits until it is back."""
        self.surfaces.pop(surface.name, None)

    async def notify(self, outgoing: Deliverable, token: str) -> None:
        """Something nobody asked for: a finished task, a schedule's message. The token makes it once."""
        await self._store.append([queued_event(token, outgoing)])
        self.delivery.queue.schedule(outgoing.room)

    async def wait_idle(self) -> None:
        """Until everything that came in is answered and delivered."""
        while self.inbound.busy or self.delivery.queue.is_running:
            await self.inbound.wait_idle()
            await self.delivery.queue.wait_idle()

    async def close(self) -> None:
        await self.inbound.close()
        await self.delivery.queue.close()
