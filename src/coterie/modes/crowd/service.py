"""The crowd's commands: open rooms, start and stop sessions, change rules, add members.

A room is opened on first use and stays open until the service closes. When a session ends, drift is computed and what
personas were still to remember is stored.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

from coterie.base.clock import Clock
from coterie.base.errors import ConfigError, ConfirmationNeeded, CoterieError
from coterie.base.logging import get_logger
from coterie.base.supervisor import SupervisedTask, Supervisor, describe, run_once
from coterie.base.untrusted import one_line
from coterie.base.values import url_origin
from coterie.characters import OWNER, Identity, PeopleQueries
from coterie.eventstore import AnyEvent, BusMessage, Store
from coterie.llm import ModelError, Models, Prompt, Role
from coterie.memory import Memory
from coterie.messaging import PersonalNotice
from coterie.modes.crowd.cluster import (
    ClusterSession,
    ContextService,
    CrowdCluster,
    PersonaWorker,
    RunningSession,
    RunningSessions,
    TrendsService,
)
from coterie.modes.crowd.decisions import ChatHistory
from coterie.modes.crowd.drift import PersonaDrift, SessionReflection
from coterie.modes.crowd.errors import AlreadyLive, NoBroker, NoSuchCrowd
from coterie.modes.crowd.events import CrowdClosed, CrowdGoverned, CrowdOpened, CrowdSaid, CrowdTicked, room_stream
from coterie.modes.crowd.gateway import ChatRoom, ChatTokens, Gateway, RoomLimits, changed_modes
from coterie.modes.crowd.generation import CannedLineWriter, LineRules, ModelLineWriter
from coterie.modes.crowd.media import is_capture, is_stream_address
from coterie.modes.crowd.memory import Mem0Store, PersonaMemory, model_extractor
from coterie.modes.crowd.personas import Persona, character_id, persona_from_character
from coterie.modes.crowd.protocol import StreamContext
from coterie.modes.crowd.relationships import Relationships
from coterie.modes.crowd.session.replay import admission_for
from coterie.modes.crowd.session.session import LineWriter, LiveSession, opening_event
from coterie.modes.crowd.session.stream_sources import SAMPLE, open_stream
from coterie.modes.crowd.settings import CrowdConfigs, CrowdSettings, FileStamp, RoomConfig
from coterie.modes.crowd.vision import model_captioner

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
_MAX_LAST_MESSAGES = 1_000
_REFLECT_INTERVAL_S = 300.0
"""Shortest time between two reflections: each one is a snapshot in the history of every persona that changed."""
OpenContexts = Callable[[float], AsyncIterator[StreamContext]]
"""Opens a stream at a number of seconds after its beginning."""


@dataclass(frozen=True)
class _InterruptedSession:
    """A session on a broker whose gateway was killed: its other processes go on."""

    running: RunningSession
    memory: PersonaMemory


class CrowdRoom(ChatRoom):
    """An open room: its gateway, its readers and the running session, if any."""

    def __init__(self, rules: RoomConfig, authored: list[Persona], gateway: Gateway, store: Store) -> None:
        super().__init__(gateway, store.bus)
        self.rules = rules
        self.authored_personas = authored
        self.drift = PersonaDrift(store, rules.name)
        self.relationships = Relationships(store, rules.name)
        self.reflection: SessionReflection | None = None
        self.memories_before = 0
        """Memories that personas stored in earlier sessions."""
        self.began_after = 0
        """The number of the last message before the session."""
        self.state: State = "quiet"
        self.stream = ""
        self.line_source: LineSource = "phrasebook"
        self.problem = ""
        """Why the last session ended early, or runs without a model."""
        self.config_problem = ""
        """What is wrong with the room's files; their last valid version is in use."""
        self.live: LiveSession | ClusterSession | None = None
        self.interrupted: _InterruptedSession | None = None
        self.contexts: deque[StreamContext] = deque(maxlen=_KEPT_CONTEXTS)
        self.broadcast_task: SupervisedTask | None = None
        self.cluster_task: SupervisedTask | None = None
        self.session_task: SupervisedTask | None = None

    @property
    def memories_stored(self) -> int:
        """New memories of personas since the room was opened."""
        now = self.live.memory.stored if self.live is not None and self.live.memory is not None else 0
        return self.memories_before + now

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
        settings: CrowdSettings,
        supervisor: Supervisor | None = None,
        cluster: CrowdCluster | None = None,
    ) -> None:
        """`folder` holds the owner's own personas, rooms, moderation lists and streams.

        With a `cluster`, rooms are open to clients on its broker, and sessions are divided among processes.
        """
        self.configs = CrowdConfigs([folder])
        self.streams_folder = folder / "streams"
        self._settings = settings
        self._folder = folder
        self._store = store
        self._memory = memory
        self._models = models
        self._clock = clock
        self._supervisor = supervisor or Supervisor(clock)
        self._cluster = cluster
        self._persona_store = Mem0Store(folder.parent / "mem0") if self._settings.memory == "mem0" else None
        self._rooms: dict[str, CrowdRoom] = {}
        self._files_task: SupervisedTask | None = None
        self._file_stamps: dict[Path, FileStamp] = {}
        self._close_by = math.inf
        self._open_lock = asyncio.Lock()

    @cached_property
    def tokens(self) -> ChatTokens:
        """The tokens of guests, workers and overlays; their key is beside the folder of configurations."""
        return ChatTokens.from_folder(self._folder.parent, self._clock)

    @property
    def open_rooms(self) -> list[CrowdRoom]:
        return list(self._rooms.values())

    async def room(self, name: str, *, running: RunningSession | None = None) -> CrowdRoom:
        """Return a room, opening it on first use.

        `running` is the session that other processes of the room still take part in, if it is to go on.
        """
        async with self._open_lock:
            if (room := self._rooms.get(name)) is not None:
                return room
            rules = self.configs.room(name)
            authored = self.configs.personas_in(rules)
            gateway = Gateway(self._store, admission_for(rules, authored, self.configs.moderator(rules)), self._clock)
            await gateway.recover()
            room = CrowdRoom(rules, authored, gateway, self._store)
            await self._apply_edits_before_start(room)
            await self._remember_interrupted_session(room, running)
            self._rooms[name] = room
            room.broadcast_task = self._supervisor.start(f"crowd room: {name}", room.run)
            if self._cluster is not None:
                serve = partial(self._cluster.serve, gateway, self._store.bus)
                room.cluster_task = self._supervisor.start(f"crowd gateway: {name}", serve)
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
        """Change a room's rules, at once."""
        room = await self.room(name)
        before = room.rules
        self._apply_rules(room, self.configs.write_room(name, changes), "owner")
        if room.live is not None and room.rules != before:
            room.live.edit(room.rules, room.drift.apply_current(room.authored_personas))
        await room.gateway.flush()
        return room

    def reload_files(self) -> None:
        """Apply edited files to the open rooms.

        They apply at once, in all processes of a session. An invalid edit changes nothing and is shown as the room's
        `config_problem`.
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

    def allowed_stream(self, name: str) -> str:
        """The stream of a name that was given on the page: the sample, a file of `streams/`, or an allowed address.

        Other files of this machine and other addresses are a `ConfirmationNeeded`.
        """
        if name == SAMPLE:
            return name
        if (file := self.configs.streams().get(name)) is not None:
            return str(file)
        allowed = {url_origin(address) for address in self._settings.stream_addresses}
        shown = one_line(name, 200)
        if is_capture(name) and name in self._settings.stream_addresses:
            return name
        if is_stream_address(name) or is_capture(name):
            if url_origin(name) in allowed and name.isprintable() and not {"\\", "@", " "} & set(name):
                return name
            raise ConfirmationNeeded(
                f"The address {shown} is not allowed.",
                f"Add it to crowd.stream_addresses, or watch it in the terminal: coterie crowd run {shown}",
            )
        raise ConfirmationNeeded(
            f"There is no stream {shown} in the folder {self.streams_folder}.",
            f"Put the file there and give its name, or watch it in the terminal: coterie crowd run {shown}",
        )

    async def start(
        self, name: str, stream: str = SAMPLE, *, line_source: LineSource = "model", speed: float = 1.0
    ) -> CrowdRoom:
        """Start a session. Raises if the stream cannot be opened."""
        settings = self._settings

        def open_contexts(start_s: float) -> AsyncIterator[StreamContext]:
            return open_stream(
                stream,
                name,
                self._clock,
                speed=speed,
                recogniser=settings.recogniser,
                language=settings.speech_language,
                start_s=start_s,
                watch=settings.watch,
                caption=model_captioner(self._models, name),
            )

        open_contexts(0.0)

        return await self.start_with_contexts(name, open_contexts, stream, line_source, speed)

    async def host(self, name: str, line_source: LineSource = "model") -> CrowdRoom:
        """Start a session whose stream and personas are in other processes, or go on with one that was interrupted."""
        if self._cluster is None:
            raise NoBroker("There is no NATS server.", "Give one with --bus, or in the settings as crowd.bus.")
        running = await RunningSessions(await self._cluster.broker()).get(name)
        await self.room(name, running=running)
        return await self.start_with_contexts(name, None, "", line_source)

    async def start_with_contexts(
        self,
        name: str,
        open_contexts: OpenContexts | None,
        stream: str,
        line_source: LineSource = "model",
        speed: float = 1.0,
    ) -> CrowdRoom:
        """Start a session on a stream, which is opened again after a failure of the session.

        Without `open_contexts`, another process publishes the stream on the broker.
        """
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
            for task in (room.cluster_task, room.broadcast_task):
                if task is not None:
                    await task.stop()
            await room.gateway.flush()
        self._rooms.clear()
        if self._persona_store is not None:
            self._persona_store.close()
        if self._cluster is not None:
            await self._cluster.close()

    async def _run_session(
        self,
        room: CrowdRoom,
        open_contexts: OpenContexts | None,
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
            # A gateway whose other processes wait for it does not give up.
            waits = open_contexts is None and any(isinstance(leaf, NoBroker) for leaf in leaves)
            ends = not waits and all(isinstance(leaf, CoterieError) for leaf in leaves)
            what = "ended" if ends else "failed and is started again"
            reason = f"The session {what}: {' '.join(describe(leaves[0]) if ends else describe(error)[:1])}"
            room.problem = reason
            if not ends:
                raise
            _log.warning("crowd_session_ended", room=room.rules.name, error=room.problem)
        finally:
            live, room.live = room.live, None
            if live is not None:
                await self._read_last_messages(room, live)
                await self._store_reflection(room, live)
                await self._store_memories(room, live, reason)
            if ends:
                self._end_session(room)

    async def _run_live(
        self, room: CrowdRoom, open_contexts: OpenContexts | None, line_source: LineSource, speed: float
    ) -> None:
        room.problem = ""
        self._set_state(room, "waking")
        runs_personas = self._cluster is None or self._cluster.run_personas
        if line_source == "model" and runs_personas and open_contexts is not None:
            await self._warm_up_model(room)
        served = await self._cluster.gateway(room.rules.name) if self._cluster is not None else None
        interrupted, room.interrupted = room.interrupted, None
        personas = room.drift.apply_current(room.authored_personas)
        relationships = room.relationships.current()
        room.began_after = room.gateway.admission.last_number
        room.reflection = SessionReflection(room.drift, room.relationships, room.authored_personas)
        memory = interrupted.memory if interrupted is not None else self._persona_memory(room, personas)
        now_ms = room.gateway.now_ms()
        linger_s = _LINGER_S / speed
        if self._cluster is not None and served is not None:
            opened = (
                interrupted.running.opened
                if interrupted
                else opening_event(room.rules, personas, now_ms, now_ms, relationships)
            )
            session = room.live = ClusterSession(
                opened,
                room.gateway,
                self._store.bus,
                served,
                speaking=line_source,
                resumed=interrupted.running if interrupted is not None else None,
                memory=memory,
                on_context=room.contexts.append,
                on_problem=lambda problem: self._set_problem(room, problem),
            )
            self._set_state(room, "live")
            async with self._reflecting(room, session):
                await self._run_in_cluster(room.rules.name, self._cluster, session, open_contexts, linger_s)
        elif open_contexts is not None:
            live = room.live = LiveSession(
                room.rules,
                personas,
                room.gateway,
                self._store.bus,
                lambda rules: create_line_writer(self._models, rules, room.rules.name, line_source),
                seed=now_ms,
                relationships=relationships,
                memory=memory,
                on_problem=lambda problem: self._set_problem(room, problem),
            )
            self._set_state(room, "live")
            async with self._reflecting(room, live):
                await live.run(_record_contexts(open_contexts(0.0), room), linger_s=linger_s)

    async def _run_in_cluster(
        self,
        name: str,
        cluster: CrowdCluster,
        session: ClusterSession,
        open_contexts: OpenContexts | None,
        linger_s: float,
    ) -> None:
        """Run the gateway's part of a session, with those of its other parts that belong into this process."""
        broker = await cluster.broker()
        services: list[Coroutine[Any, Any, None]] = []
        stream_ended = asyncio.Event()
        if open_contexts is not None:
            context = ContextService(broker, name, open_contexts, self._clock)
            stream_ended = context.ended
            services.append(context.run())
        if cluster.run_personas and open_contexts is not None:
            room = self._rooms[name]
            worker = PersonaWorker(
                broker,
                name,
                cluster.worker_token(name),
                lambda rules, running: create_line_writer(self._models, rules, name, running.speaking),
                self._clock,
                on_problem=lambda problem: self._set_problem(room, problem),
            )
            services += [TrendsService(broker, name, self._clock).run(), worker.run()]
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(service) for service in services]
            await session.run(stream_ended, linger_s=linger_s)
            for task in beside:
                task.cancel()

    async def _warm_up_model(self, room: CrowdRoom) -> None:
        """Load the model before the session starts, so that the first line is not late."""
        try:
            await self._models.ask(Role.CROWD, Prompt.of("Say hi.", max_tokens=8), deadline_s=_WARM_UP_TIMEOUT_S)
        except ModelError as error:
            room.problem = f"{error.what} Personas use their canned lines. {error.fix}"

    @asynccontextmanager
    async def _reflecting(self, room: CrowdRoom, live: LiveSession | ClusterSession) -> AsyncIterator[None]:
        """Store drift and relationships during a session, after so many messages and not too often."""

        async def reflect() -> None:
            due = room.rules.tempo.reflect_every
            while True:
                await asyncio.sleep(_REFLECT_INTERVAL_S)
                if live.session.activity.messages >= due:
                    due = live.session.activity.messages + room.rules.tempo.reflect_every
                    await self._store_reflection(room, live)

        reflecting = run_once("reflection of personas", reflect())
        try:
            yield
        finally:
            reflecting.cancel()
            await asyncio.gather(reflecting, return_exceptions=True)

    async def _store_reflection(self, room: CrowdRoom, live: LiveSession | ClusterSession) -> None:
        """Store drift and relationships of every persona, however the session goes on or ended."""
        try:
            if room.reflection is not None:
                await room.reflection.store(live.session.activity)
        except Exception:  # the session is not affected
            _log.exception("drift was not stored", room=room.rules.name)

    async def _read_last_messages(self, room: CrowdRoom, live: LiveSession | ClusterSession) -> None:
        """Messages that arrived while the session was stopping count as well."""
        try:
            read = max(room.began_after, live.session.history.last_number)
            for message in await room.gateway.after(read, _MAX_LAST_MESSAGES):
                live.session.add_message(message)
        except Exception:  # the session is over all the same
            _log.exception("the last messages were not read", room=room.rules.name)

    async def _store_memories(self, room: CrowdRoom, live: LiveSession | ClusterSession, reason: str) -> None:
        """Store what personas were still to remember. What takes too long is stored at the next start."""
        stored = live.memory is None or await self._store_pending(room, live.memory, live.session.history)
        room.memories_before += live.memory.stored if live.memory is not None else 0
        if stored:
            await self._record_end(room, reason)

    async def _store_pending(self, room: CrowdRoom, memory: PersonaMemory, history: ChatHistory) -> bool:
        """Store all pending memories within a time limit. Returns whether that was possible."""
        until = min(self._close_by, self._clock.monotonic() + _STORE_MEMORIES_S)
        await memory.stop_storing()
        try:
            while memory.pending:
                if self._clock.monotonic() > until:
                    _log.warning("crowd memories are stored at the next start", room=room.rules.name)
                    return False
                if memory.uses_model:
                    await memory.store_next_with_model(history.spam_filter, until - self._clock.monotonic())
                else:
                    memory.store_next(history.spam_filter)
                await asyncio.sleep(0)
        except Exception:
            _log.exception("crowd memories were not stored", room=room.rules.name)
            return False
        return True

    @property
    def notices(self) -> dict[str, Callable[[AnyEvent], PersonalNotice | None]]:
        """The notices for people, by the kind of event that leads to them."""
        return {CrowdClosed.kind: _notice_of_end}

    async def _record_end(self, room: CrowdRoom, reason: str) -> None:
        room.gateway.record(CrowdClosed(at_ms=room.gateway.now_ms(), reason=reason))
        await room.gateway.flush()

    async def _interrupted_session(self, name: str) -> tuple[int, CrowdOpened] | None:
        """The beginning of a session that has no recorded end, and its place in the log."""
        kinds = [CrowdOpened.kind, CrowdClosed.kind]
        events = await self._store.read(room_stream(name), kinds=kinds, limit=1, newest_first=True)
        payload = events[0].payload if events else None
        return (events[0].seq, payload) if isinstance(payload, CrowdOpened) else None

    async def _remember_interrupted_session(self, room: CrowdRoom, running: RunningSession | None) -> None:
        """After a crash: store what personas had answered and not yet stored, from the log.

        A session that is still `running` in other processes goes on instead.
        """
        interrupted = await self._interrupted_session(room.rules.name)
        if interrupted is None:
            return
        began, opened = interrupted
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
        if running is not None and running.opened.start_ms == opened.start_ms:
            room.interrupted = _InterruptedSession(running, memory)
        elif await self._store_pending(room, memory, history):
            await self._record_end(room, "The server was stopped during the session.")

    def _persona_memory(self, room: CrowdRoom, personas: Sequence[Persona]) -> PersonaMemory:
        return PersonaMemory(
            self._persona_store or self._memory,
            room.rules.name,
            [persona.name for persona in personas],
            owners={persona.name: character_id(persona) for persona in personas},
            people=PeopleQueries(self._store).ids,
            model=model_extractor(self._models, room.rules.name) if self._settings.extraction == "model" else None,
        )

    def _end_session(self, room: CrowdRoom) -> None:
        room.session_task = None
        self._reload_configs(room)
        self._set_state(room, "quiet")

    def _reload_configs(self, room: CrowdRoom) -> None:
        """Apply the files of a room and its personas as they are now. Invalid ones change nothing."""
        try:
            rules = self.configs.room(room.rules.name)
            authored, before = self.configs.personas_in(rules), room.rules
            self._apply_rules(room, rules, "file")
            problems = self.configs.problems()
            files = [f"rooms/{rules.name}", *(f"personas/{name}" for name in rules.roster or problems)]
            problem = next((str(problems[file]) for file in files if file in problems), "")
        except ConfigError as error:
            problem = str(error)
        else:
            if room.live is None:
                self._apply_personas(room, authored)
            elif authored != room.authored_personas or rules != before:
                self._apply_personas(room, authored)
                room.live.edit(rules, room.drift.apply_current(authored))
        if problem and problem != room.config_problem:
            _log.error("crowd file not applied", room=room.rules.name, error=problem)
        if problem != room.config_problem:
            room.config_problem = problem
            self._set_state(room, room.state)

    def _apply_personas(self, room: CrowdRoom, authored: list[Persona]) -> None:
        room.authored_personas = authored
        room.gateway.admission.add_names(persona.name for persona in authored)

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


def create_line_writer(models: Models | None, rules: LineRules, room: str, line_source: str) -> LineWriter:
    """Create the writer of a session's lines in the room of this name; canned lines are used without `models`."""
    if line_source == "phrasebook" or models is None:
        return CannedLineWriter(rules)
    return ModelLineWriter(models, rules, room)


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


def _notice_of_end(event: AnyEvent) -> PersonalNotice | None:
    """Only of a session that ended early: the owner stopped the others, or their stream was over."""
    ended = event.payload
    if not isinstance(ended, CrowdClosed) or not ended.reason:
        return None
    return PersonalNotice(OWNER, f"The live chat {event.stream.partition(':')[2]} ended early: {ended.reason}")
