"""The crowd's commands: open rooms, start and stop sessions, change rules, add members.

A room is opened on first use and stays open until the service closes. Drift is computed when a session ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.logging import get_logger
from coterie.base.supervisor import SupervisedTask, Supervisor, describe
from coterie.characters import Identity, PeopleQueries
from coterie.eventstore import BusMessage, Store
from coterie.llm import ModelError, Models, Prompt, Role
from coterie.memory import Memory
from coterie.modes.crowd.drift import PersonaDrift, SessionActivity
from coterie.modes.crowd.errors import AlreadyLive, NoSuchCrowd
from coterie.modes.crowd.events import CrowdGoverned
from coterie.modes.crowd.gateway import ChatRoom, Gateway
from coterie.modes.crowd.generation import CannedLineWriter, LineRules, ModelLineWriter
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.personas import Persona, character_id, persona_from_character
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.replay import admission_for
from coterie.modes.crowd.session.session import LineWriter, LiveSession
from coterie.modes.crowd.session.stream_sources import SAMPLE, open_stream
from coterie.modes.crowd.settings import CrowdConfigs, RoomConfig

State = Literal["quiet", "waking", "live"]
LineSource = Literal["model", "phrasebook"]
_log = get_logger(__name__)
_WARM_UP_TIMEOUT_S = 120
_LINGER_S = 15.0
_KEPT_CONTEXTS = 60


class CrowdRoom(ChatRoom):
    """An open room: its gateway, its readers and the running session, if any."""

    def __init__(self, rules: RoomConfig, authored: list[Persona], gateway: Gateway, store: Store) -> None:
        super().__init__(gateway, store.bus)
        self.rules = rules
        self.authored_personas = authored
        self.drift = PersonaDrift(store, rules.name)
        self.state: State = "quiet"
        self.stream = ""
        self.line_source: LineSource = "phrasebook"
        self.problem = ""
        """Why the last session ended early, or runs without a model."""
        self.live: LiveSession | None = None
        self.contexts: deque[StreamContext] = deque(maxlen=_KEPT_CONTEXTS)
        self.broadcast_task: SupervisedTask | None = None
        self.session_task: SupervisedTask | None = None

    def persona(self, name: str) -> Persona:
        """Return a persona as authored."""
        persona = next((persona for persona in self.authored_personas if persona.name == name), None)
        if persona is None:
            raise NoSuchCrowd(f"There is no {name} in {self.rules.title}.", "The room's page lists its personas.")
        return persona


class CrowdService:
    """All rooms of this process. Surfaces and commands use rooms only through it."""

    def __init__(
        self,
        store: Store,
        memory: Memory,
        models: Models,
        clock: Clock,
        folder: Path,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`folder` holds the owner's own personas, rooms and moderation lists."""
        self.configs = CrowdConfigs([folder])
        self._store = store
        self._memory = memory
        self._models = models
        self._clock = clock
        self._supervisor = supervisor or Supervisor(clock)
        self._rooms: dict[str, CrowdRoom] = {}
        self._open_lock = asyncio.Lock()

    @property
    def open_rooms(self) -> list[CrowdRoom]:
        return list(self._rooms.values())

    async def room(self, name: str) -> CrowdRoom:
        """Return a room, opening it on first use."""
        async with self._open_lock:
            if (room := self._rooms.get(name)) is not None:
                return room
            rules = self.configs.room(name)
            authored = self.configs.personas_in(rules)
            gateway = Gateway(self._store, admission_for(rules, authored, self.configs.moderator(rules)), self._clock)
            await gateway.recover()
            room = self._rooms[name] = CrowdRoom(rules, authored, gateway, self._store)
            room.broadcast_task = self._supervisor.start(f"crowd room: {name}", room.run)
            return room

    async def change_rules(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> CrowdRoom:
        """Change a room's rules: limits and moderation at once, tempo from the next session on."""
        room = await self.room(name)
        room.rules = self.configs.write_room(name, changes)
        room.gateway.admission.change_rules(self.configs.moderator(room.rules), room.rules.limits)
        room.gateway.record(CrowdGoverned(rules=room.rules.model_dump(mode="json")), "owner")
        await room.gateway.flush()
        return room

    async def add_member(self, name: str, character: Identity) -> Persona:
        """Add a character to a room, from the next session on."""
        room = await self.room(name)
        persona = self.configs.add_member(name, persona_from_character(character))
        if room.session_task is None:
            self._reload_configs(room)
        return persona

    async def start(
        self, name: str, stream: str = SAMPLE, *, line_source: LineSource = "model", speed: float = 1.0
    ) -> CrowdRoom:
        """Start a session. Raises if the stream cannot be opened."""
        open_contexts = partial(open_stream, stream, name, self._clock, speed=speed)
        open_contexts()
        return await self.start_with_contexts(name, open_contexts, stream, line_source, speed)

    async def start_with_contexts(
        self,
        name: str,
        open_contexts: Callable[[], AsyncIterator[StreamContext]],
        stream: str,
        line_source: LineSource = "model",
        speed: float = 1.0,
    ) -> CrowdRoom:
        """Start a session on a stream, which is opened again after a failure of the session."""
        room = await self.room(name)
        if room.session_task is not None:
            raise AlreadyLive(f"{room.rules.title} is live already.", "Stop it before you start another session.")
        # Files may have been edited since the last session.
        self._reload_configs(room)
        room.gateway.admission.change_rules(self.configs.moderator(room.rules), room.rules.limits)
        room.stream, room.line_source = stream, line_source
        self._set_state(room, "waking")
        room.session_task = self._supervisor.start(
            f"crowd session: {name}", lambda: self._run_session(room, open_contexts, line_source, speed)
        )
        return room

    async def stop(self, name: str) -> CrowdRoom:
        room = await self.room(name)
        if (task := room.session_task) is not None:
            await task.stop()
            if room.session_task is task:  # stopped before it had started, or while it waited for its next start
                self._end_session(room)
        return room

    async def close(self) -> None:
        for room in self.open_rooms:
            await self.stop(room.rules.name)
            if room.broadcast_task is not None:
                await room.broadcast_task.stop()
            await room.gateway.flush()
        self._rooms.clear()

    async def _run_session(
        self,
        room: CrowdRoom,
        open_contexts: Callable[[], AsyncIterator[StreamContext]],
        line_source: LineSource,
        speed: float,
    ) -> None:
        """Run until the stream ends or cannot be read. After any other failure the session stays, to be run again."""
        ends = True
        try:
            await self._run_live(room, open_contexts, line_source, speed)
        except Exception as error:
            leaves = list(_leaf_errors(error))
            ends = all(isinstance(leaf, CoterieError) for leaf in leaves)
            room.problem = str(leaves[0]) if ends else f"The session failed and is started again: {describe(error)[0]}"
            if not ends:
                raise
            _log.warning("crowd_session_ended", room=room.rules.name, error=room.problem)
        finally:
            await self._store_drift(room)
            if ends:
                self._end_session(room)

    async def _run_live(
        self,
        room: CrowdRoom,
        open_contexts: Callable[[], AsyncIterator[StreamContext]],
        line_source: LineSource,
        speed: float,
    ) -> None:
        name = room.rules.name
        room.problem = ""
        self._set_state(room, "waking")
        if line_source == "model":
            await self._warm_up_model(room)
        personas = room.drift.apply_current(room.authored_personas)
        memory = PersonaMemory(
            self._memory,
            name,
            [persona.name for persona in personas],
            owners={persona.name: character_id(persona) for persona in personas},
            people=PeopleQueries(self._store).ids,
        )

        def create_writer(rules: LineRules) -> LineWriter:
            if line_source == "phrasebook":
                return CannedLineWriter(rules)
            return ModelLineWriter(self._models, rules, name, stand_in=room.rules.tempo.stand_in)

        room.live = LiveSession(
            room.rules,
            personas,
            room.gateway,
            self._store.bus,
            create_writer,
            seed=room.gateway.now_ms(),
            memory=memory,
        )
        self._set_state(room, "live")
        await room.live.run(_record_contexts(open_contexts(), room), linger_s=_LINGER_S / speed)

    async def _warm_up_model(self, room: CrowdRoom) -> None:
        """Load the model before the session starts, so that the first line is not late."""
        try:
            await self._models.ask(Role.CROWD, Prompt.of("Say hi.", max_tokens=8), deadline_s=_WARM_UP_TIMEOUT_S)
        except ModelError as error:
            room.problem = f"{error.what} Personas use their canned lines. {error.fix}"

    async def _store_drift(self, room: CrowdRoom) -> None:
        """Store the drift of every persona, however the session ended."""
        live, room.live = room.live, None
        if live is None:
            return
        try:
            for persona in room.authored_personas:
                activity = SessionActivity.from_history(persona.name, live.session.history.recent)
                await room.drift.apply_session(persona, activity)
        except Exception:  # the session is over all the same
            _log.exception("drift was not stored", room=room.rules.name)

    def _end_session(self, room: CrowdRoom) -> None:
        room.session_task = None
        self._set_state(room, "quiet")

    def _reload_configs(self, room: CrowdRoom) -> None:
        """Read the room and its personas from their files again."""
        room.rules = self.configs.room(room.rules.name)
        room.authored_personas = self.configs.personas_in(room.rules)
        room.gateway.admission.add_names(persona.name for persona in room.authored_personas)

    def _set_state(self, room: CrowdRoom, state: State) -> None:
        room.state = state
        self._store.bus.publish([BusMessage(f"crowd.state.{room.rules.name}", state)])


async def _record_contexts(contexts: AsyncIterator[StreamContext], room: CrowdRoom) -> AsyncIterator[StreamContext]:
    async for context in contexts:
        room.contexts.append(context)
        yield context


def _leaf_errors(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaf_errors(each)
    else:
        yield error
