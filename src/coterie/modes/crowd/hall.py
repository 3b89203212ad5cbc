"""The hall: every room of the crowd in one process, opened when somebody looks in, with an evening running or not.

Pages, sockets and commands all come here; nobody else builds a gateway. A room stays open until the hall closes; an
evening in it is started and stopped, and its end is when everybody looks back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.cast.identity import Identity
from coterie.cast.people import PeopleBook
from coterie.kernel import Message, Store
from coterie.llm.errors import ModelError
from coterie.llm.messages import Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.crowd.drift import DriftBook, Happened
from coterie.modes.crowd.errors import AlreadyLive, NoSuchCrowd
from coterie.modes.crowd.events import CrowdGoverned
from coterie.modes.crowd.gateway import Gateway, Room
from coterie.modes.crowd.memories import Keeper
from coterie.modes.crowd.personas import Persona, RoomFile, Roster
from coterie.modes.crowd.personas.character import character_id, persona_of
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.live import Live, Voice
from coterie.modes.crowd.session.replay import door_of
from coterie.modes.crowd.session.streams import SAMPLE, stream_named
from coterie.modes.crowd.voice import Manners
from coterie.modes.crowd.voice.model_voice import ModelVoice, PhrasebookVoice

State = Literal["quiet", "waking", "live"]
Speaking = Literal["model", "phrasebook"]
_log = get_logger(__name__)
_WAKING_S = 120
_LINGER_S = 15.0
_CONTEXTS = 60


class OpenRoom(Room):
    """A room that can be read and written, and the evening that runs in it, if one does."""

    def __init__(self, rules: RoomFile, authored: list[Persona], gateway: Gateway, store: Store) -> None:
        super().__init__(gateway, store.bus)
        self.rules = rules
        self.authored = authored
        self.drift = DriftBook(store, rules.name)
        self.state: State = "quiet"
        self.stream = ""
        self.speaking: Speaking = "phrasebook"
        self.trouble = ""
        """Why the last evening ended early, or goes on with less."""
        self.live: Live | None = None
        self.contexts: deque[StreamContext] = deque(maxlen=_CONTEXTS)
        self.passing: asyncio.Task[None] | None = None
        self.evening: asyncio.Task[None] | None = None

    def persona(self, name: str) -> Persona:
        """As authored."""
        found = next((persona for persona in self.authored if persona.name == name), None)
        if found is None:
            raise NoSuchCrowd(f"There is no {name} in {self.rules.title}.", "The room's page lists its regulars.")
        return found


class Hall:
    def __init__(self, store: Store, memory: Memory, models: Models, clock: Clock, folder: Path) -> None:
        """`folder` holds a person's own personas, rooms and moderation lists."""
        self.roster = Roster([folder])
        self._store = store
        self._memory = memory
        self._models = models
        self._clock = clock
        self._rooms: dict[str, OpenRoom] = {}
        self._opening = asyncio.Lock()

    @property
    def opened(self) -> list[OpenRoom]:
        return list(self._rooms.values())

    async def room(self, name: str) -> OpenRoom:
        """A room, opened if nobody has looked in yet."""
        async with self._opening:
            if (known := self._rooms.get(name)) is not None:
                return known
            rules = self.roster.room(name)
            authored = self.roster.of(rules)
            gateway = Gateway(self._store, door_of(rules, authored, self.roster.moderator(rules)), self._clock)
            await gateway.recover()
            made = self._rooms[name] = OpenRoom(rules, authored, gateway, self._store)
            made.passing = asyncio.create_task(made.run(), name=f"crowd {name}")
            return made

    async def change_rules(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> OpenRoom:
        """Limits and moderation at once, the tempo of personas from the next evening on."""
        room = await self.room(name)
        room.rules = self.roster.write_room(name, changes)
        room.gateway.door.govern(self.roster.moderator(room.rules), room.rules.limits)
        room.gateway.note(CrowdGoverned(rules=room.rules.model_dump(mode="json")), "owner")
        await room.gateway.settle()
        return room

    async def seat(self, name: str, who: Identity) -> Persona:
        """Somebody of the cast as a regular of a room, from the next evening on. C5"""
        room = await self.room(name)
        persona = self.roster.seat(name, persona_of(who))
        if room.evening is None:
            self._read(room)
        return persona

    async def start(
        self, name: str, stream: str = SAMPLE, *, speaking: Speaking = "model", speed: float = 1.0
    ) -> OpenRoom:
        """Begin an evening. A stream that cannot be is told here."""
        return await self.play(name, stream_named(stream, name, self._clock, speed=speed), stream, speaking, speed)

    async def play(
        self,
        name: str,
        contexts: AsyncIterator[StreamContext],
        stream: str,
        speaking: Speaking = "model",
        speed: float = 1.0,
    ) -> OpenRoom:
        room = await self.room(name)
        if room.evening is not None:
            raise AlreadyLive(f"{room.rules.title} is live already.", "Stop it before you start another evening.")
        # What was edited since the last evening counts from here on.
        self._read(room)
        room.gateway.door.govern(self.roster.moderator(room.rules), room.rules.limits)
        room.stream, room.speaking, room.trouble = stream, speaking, ""
        self._stand(room, "waking")
        room.evening = asyncio.create_task(self._evening(room, contexts, speaking, speed), name=f"evening {name}")
        return room

    async def stop(self, name: str) -> OpenRoom:
        room = await self.room(name)
        if (evening := room.evening) is not None:
            evening.cancel()
            await asyncio.gather(evening, return_exceptions=True)
            if room.evening is evening:  # it was stopped before it had begun
                await self._end(room)
        return room

    async def close(self) -> None:
        for room in self.opened:
            await self.stop(room.rules.name)
            if room.passing is not None:
                room.passing.cancel()
                await asyncio.gather(room.passing, return_exceptions=True)
            await room.gateway.settle()
        self._rooms.clear()

    async def _evening(
        self, room: OpenRoom, contexts: AsyncIterator[StreamContext], speaking: Speaking, speed: float
    ) -> None:
        name = room.rules.name
        try:
            if speaking == "model":
                await self._wake(room)
            personas = room.drift.drifted(room.authored)
            keeper = Keeper(
                self._memory,
                name,
                [persona.name for persona in personas],
                owners={persona.name: character_id(persona) for persona in personas},
                people=PeopleBook(self._store).ids,
            )

            def voice(manners: Manners) -> Voice:
                if speaking == "phrasebook":
                    return PhrasebookVoice(manners)
                return ModelVoice(self._models, manners, name, stand_in=room.rules.tempo.stand_in)

            room.live = Live(
                room.rules, personas, room.gateway, self._store.bus, voice, seed=room.gateway.now_ms(), keeper=keeper
            )
            self._stand(room, "live")
            await room.live.run(_noted(contexts, room), linger_s=_LINGER_S / speed)
        except* CoterieError as errors:
            first = next(_leaves(errors))
            room.trouble = f"{first}"
            _log.warning("crowd_evening_ended", room=name, error=room.trouble)
        finally:
            await self._end(room)

    async def _wake(self, room: OpenRoom) -> None:
        """The first answer of a model that has to be loaded takes long: not while somebody waits for a line."""
        try:
            await self._models.ask(Role.CROWD, Prompt.of("Say hi.", max_tokens=8), deadline_s=_WAKING_S)
        except ModelError as error:
            room.trouble = f"{error.what} Personas speak from their phrasebooks. {error.fix}"

    async def _end(self, room: OpenRoom) -> None:
        """Everybody looks back, however the evening ended."""
        try:
            if room.live is not None:
                heard = room.live.evening.hearing.recent
                for persona in room.authored:
                    await room.drift.look_back(persona, Happened.of(persona.name, heard))
        finally:
            room.live, room.evening = None, None
            self._stand(room, "quiet")

    def _read(self, room: OpenRoom) -> None:
        """Who is there, as the files say it now."""
        room.rules = self.roster.room(room.rules.name)
        room.authored = self.roster.of(room.rules)
        room.gateway.door.know(persona.name for persona in room.authored)

    def _stand(self, room: OpenRoom, state: State) -> None:
        room.state = state
        self._store.bus.publish([Message(f"crowd.state.{room.rules.name}", state)])


async def _noted(contexts: AsyncIterator[StreamContext], room: OpenRoom) -> AsyncIterator[StreamContext]:
    async for context in contexts:
        room.contexts.append(context)
        yield context


def _leaves(group: BaseExceptionGroup[CoterieError]) -> Iterator[CoterieError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
