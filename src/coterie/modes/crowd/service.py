"""The crowd's commands: open rooms, start and stop sessions, change rules, add members.

A room is opened on first use and stays open until the service closes. When a session ends, drift is computed and what
personas were still to remember is stored.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from coterie.base.clock import Clock
from coterie.base.errors import ConfigError, CoterieError
from coterie.base.logging import get_logger
from coterie.base.supervisor import SupervisedTask, Supervisor, describe
from coterie.characters import Identity, PeopleQueries
from coterie.eventstore import BusMessage, Store
from coterie.llm import ModelError, Models, Prompt, Role
from coterie.memory import Memory
from coterie.modes.crowd.decisions import ChatHistory
from coterie.modes.crowd.drift import PersonaDrift, SessionActivity
from coterie.modes.crowd.errors import AlreadyLive, NoSuchCrowd
from coterie.modes.crowd.events import CrowdClosed, CrowdGoverned, CrowdOpened, CrowdSaid, CrowdTicked, room_stream
from coterie.modes.crowd.gateway import ChatRoom, Gateway, RoomLimits, changed_modes
from coterie.modes.crowd.generation import CannedLineWriter, LineRules, ModelLineWriter
from coterie.modes.crowd.memory import PersonaMemory
from coterie.modes.crowd.personas import Persona, character_id, persona_from_character
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.session.replay import admission_for
from coterie.modes.crowd.session.session import LineWriter, LiveSession
from coterie.modes.crowd.session.stream_sources import SAMPLE, open_stream
from coterie.modes.crowd.settings import CrowdConfigs, FileStamp, RoomConfig

State = Literal["quiet", "waking", "live"]
LineSource = Literal["model", "phrasebook"]
_log = get_logger(__name__)
_WARM_UP_TIMEOUT_S = 120
_LINGER_S = 15.0
_KEPT_CONTEXTS = 60
RELOAD_S = 2.0
"""Interval at which edited files are noticed."""
_STORE_MEMORIES_S = 5.0
"""Time for storing memories when a session ends, and for all sessions together when the server stops."""
_MAX_INTERRUPTED_EVENTS = 5_000


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
        self.config_problem = ""
        """What is wrong with the room's files; their last valid version is in use."""
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
        self._files_task: SupervisedTask | None = None
        self._file_stamps: dict[Path, FileStamp] = {}
        self._close_by = math.inf
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
            room = CrowdRoom(rules, authored, gateway, self._store)
            await self._apply_edits_before_start(room)
            await self._remember_interrupted_session(room)
            self._rooms[name] = room
            room.broadcast_task = self._supervisor.start(f"crowd room: {name}", room.run)
            if self._files_task is None:
                self._file_stamps = self.configs.stamps()
                self._files_task = self._supervisor.start("crowd files", self._watch_files)
            return room

    async def recover(self) -> None:
        """Store what personas were to remember of sessions that a crash interrupted."""
        for name in self.configs.rooms():
            try:
                if await self._interrupted_session(name) is not None:
                    await self.room(name)
            except Exception:  # the server starts all the same, and opening the room shows the error
                _log.exception("crowd session not recovered", room=name)

    async def change_rules(self, name: str, changes: Mapping[str, Mapping[str, Any]]) -> CrowdRoom:
        """Change a room's rules: limits and moderation at once, tempo from the next session on."""
        room = await self.room(name)
        self._apply_rules(room, self.configs.write_room(name, changes), "owner")
        await room.gateway.flush()
        return room

    def reload_files(self) -> None:
        """Apply edited files to the open rooms.

        Limits and moderation apply at once, the rest from the next session on. An invalid edit changes nothing and is
        shown as the room's `config_problem`.
        """
        self._file_stamps = self.configs.stamps()
        for room in self.open_rooms:
            self._reload_configs(room)

    async def _watch_files(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            if self.configs.stamps() != self._file_stamps:
                self.reload_files()
            if self._files_task is not None:
                problem = next(iter(self.configs.problems().values()), None)
                if problem is not None:
                    self._files_task.report_problem(problem.what, problem.fix)
                else:
                    self._files_task.report_recovery()

    async def add_member(self, name: str, character: Identity) -> Persona:
        """Add a character to a room, from the next session on."""
        room = await self.room(name)
        persona = self.configs.add_member(name, persona_from_character(character))
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
        # Files may have been edited. Every session starts with full rate limits, as a replay of it does.
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
            if room.session_task is task:
                self._end_session(room)
        return room

    async def close(self) -> None:
        self._close_by = self._clock.monotonic() + _STORE_MEMORIES_S
        if self._files_task is not None:
            await self._files_task.stop()
            self._files_task = None
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
        ends, reason = True, ""
        try:
            await self._run_live(room, open_contexts, line_source, speed)
        except asyncio.CancelledError:
            ends = False  # `stop` ends it
            raise
        except Exception as error:
            leaves = list(_leaf_errors(error))
            ends = all(isinstance(leaf, CoterieError) for leaf in leaves)
            what = "ended" if ends else "failed and is started again"
            reason = f"The session {what}: {' '.join(describe(leaves[0]) if ends else describe(error)[:1])}"
            room.problem = reason
            if not ends:
                raise
            _log.warning("crowd_session_ended", room=room.rules.name, error=room.problem)
        finally:
            live, room.live = room.live, None
            if live is not None:
                await self._store_drift(room, live)
                await self._store_memories(room, live, reason)
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
        memory = self._persona_memory(room, personas)

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
            on_problem=lambda problem: self._set_problem(room, problem),
        )
        self._set_state(room, "live")
        await room.live.run(_record_contexts(open_contexts(), room), linger_s=_LINGER_S / speed)

    async def _warm_up_model(self, room: CrowdRoom) -> None:
        """Load the model before the session starts, so that the first line is not late."""
        try:
            await self._models.ask(Role.CROWD, Prompt.of("Say hi.", max_tokens=8), deadline_s=_WARM_UP_TIMEOUT_S)
        except ModelError as error:
            room.problem = f"{error.what} Personas use their canned lines. {error.fix}"

    async def _store_drift(self, room: CrowdRoom, live: LiveSession) -> None:
        """Store the drift of every persona, however the session ended."""
        try:
            for persona in room.authored_personas:
                activity = SessionActivity.from_history(persona.name, live.session.history.recent)
                await room.drift.apply_session(persona, activity)
        except Exception:  # the session is over all the same
            _log.exception("drift was not stored", room=room.rules.name)

    async def _store_memories(self, room: CrowdRoom, live: LiveSession, reason: str) -> None:
        """Store what personas were still to remember. What takes too long is stored at the next start."""
        if live.memory is None or await self._store_pending(room, live.memory, live.session.history):
            await self._record_end(room, reason)

    async def _store_pending(self, room: CrowdRoom, memory: PersonaMemory, history: ChatHistory) -> bool:
        """Store all pending memories within a time limit. Returns whether that was possible."""
        until = min(self._close_by, self._clock.monotonic() + _STORE_MEMORIES_S)
        try:
            while memory.pending:
                if self._clock.monotonic() > until:
                    _log.warning("crowd memories are stored at the next start", room=room.rules.name)
                    return False
                memory.store_next(history.spam_filter)
                await asyncio.sleep(0)
        except Exception:
            _log.exception("crowd memories were not stored", room=room.rules.name)
            return False
        return True

    async def _record_end(self, room: CrowdRoom, reason: str) -> None:
        room.gateway.record(CrowdClosed(at_ms=room.gateway.now_ms(), reason=reason))
        await room.gateway.flush()

    async def _interrupted_session(self, name: str) -> int | None:
        """The place in the log where a session began that has no recorded end."""
        kinds = [CrowdOpened.kind, CrowdClosed.kind]
        events = await self._store.read(room_stream(name), kinds=kinds, limit=1, newest_first=True)
        return events[0].seq if events and isinstance(events[0].payload, CrowdOpened) else None

    async def _remember_interrupted_session(self, room: CrowdRoom) -> None:
        """After a crash: store what personas had answered and not yet stored, from the log."""
        began = await self._interrupted_session(room.rules.name)
        if began is None:
            return
        events = await self._store.read(
            room.gateway.stream,
            after=began,
            kinds=[CrowdSaid.kind, CrowdTicked.kind],
            limit=_MAX_INTERRUPTED_EVENTS,
            newest_first=True,
        )
        memory, history = self._persona_memory(room, room.authored_personas), ChatHistory()
        names = {persona.name for persona in room.authored_personas}
        for event in reversed(events):
            if isinstance(event.payload, CrowdTicked):
                memory.skip_due(event.payload.at_ms)
            elif isinstance(event.payload, CrowdSaid):
                message = event.payload.message
                history.add(message)
                answered = history.find(message.reply_to or "")
                if message.author.kind == "persona" and message.author.name in names and answered is not None:
                    memory.record_answer(message.author.name, answered)
        if await self._store_pending(room, memory, history):
            await self._record_end(room, "The server was stopped during the session.")

    def _persona_memory(self, room: CrowdRoom, personas: Sequence[Persona]) -> PersonaMemory:
        return PersonaMemory(
            self._memory,
            room.rules.name,
            [persona.name for persona in personas],
            owners={persona.name: character_id(persona) for persona in personas},
            people=PeopleQueries(self._store).ids,
        )

    def _end_session(self, room: CrowdRoom) -> None:
        room.session_task = None
        self._reload_configs(room)
        self._set_state(room, "quiet")

    def _reload_configs(self, room: CrowdRoom) -> None:
        """Apply the files of a room and its personas as they are now. Invalid ones change nothing."""
        try:
            rules = self.configs.room(room.rules.name)
            authored = self.configs.personas_in(rules)
            self._apply_rules(room, rules, "file")
            problems = self.configs.problems()
            files = [f"rooms/{rules.name}", *(f"personas/{name}" for name in rules.roster or problems)]
            problem = next((str(problems[file]) for file in files if file in problems), "")
        except ConfigError as error:
            problem = str(error)
        else:
            if room.session_task is None:
                room.authored_personas = authored
                room.gateway.admission.add_names(persona.name for persona in authored)
        if problem and problem != room.config_problem:
            _log.error("crowd file not applied", room=room.rules.name, error=problem)
        if problem != room.config_problem:
            room.config_problem = problem
            self._set_state(room, room.state)

    def _apply_rules(self, room: CrowdRoom, rules: RoomConfig, actor: str) -> None:
        moderator = self.configs.moderator(rules)
        if rules == room.rules:  # the word lists may have changed
            room.gateway.admission.moderator = moderator
            return
        changed = changed_modes(room.rules.limits, rules.limits)
        room.rules = rules
        room.gateway.admission.change_rules(moderator, rules.limits, changed)
        room.gateway.record(CrowdGoverned(rules=rules.model_dump(mode="json"), changed=changed), actor)

    async def _apply_edits_before_start(self, room: CrowdRoom) -> None:
        """Slow mode and followers-only that were edited in the file while the server did not run count from now on."""
        kinds = [CrowdOpened.kind, CrowdGoverned.kind]
        events = await self._store.read(room.gateway.stream, kinds=kinds, limit=1, newest_first=True)
        payload = events[0].payload if events else None
        if isinstance(payload, CrowdOpened | CrowdGoverned):
            last = RoomLimits.model_validate(payload.rules.get("limits", {}))
            if changed := changed_modes(last, room.rules.limits):
                rules = room.rules.model_dump(mode="json")
                room.gateway.record(CrowdGoverned(rules=rules, changed=changed), "file")
                room.gateway.admission.moderation_state.apply_limits(room.rules.limits, changed)

    def _set_problem(self, room: CrowdRoom, problem: str) -> None:
        if problem != room.problem:
            room.problem = problem
            self._set_state(room, room.state)

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
