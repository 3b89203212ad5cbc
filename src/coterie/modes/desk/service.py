"""The desk: a character that answers at once while branches and workers do the work in the background."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.ids import new_id
from coterie.characters import Characters, Workspaces
from coterie.conversation import AssistantTurn, Segment, Turn, TurnQueries, UserTurn
from coterie.eventstore import Handler, Job, JobResult, NewEvent, NewJob, Store, WhenSlow, Worker, subject_token
from coterie.llm import Models, Role
from coterie.memory import Memory
from coterie.messaging import Attachment, ChatStatus, NewChat, OutgoingMessage, ReplyFinished, ReplyUpdate, RoomRef
from coterie.modes.desk.agents.branches import Branches, CharacterQuestions, MayTalk
from coterie.modes.desk.agents.channel import Channel
from coterie.modes.desk.agents.maintenance import UNKNOWN_WINDOW, Compactor, DeskMaintenance, StalledProcesses
from coterie.modes.desk.agents.processes import AgentDeps, Confirmations, Processes
from coterie.modes.desk.agents.tools import AgentTool, McpServers
from coterie.modes.desk.agents.workers import Workers, skill_tools, worker_tools
from coterie.modes.desk.errors import DeskError
from coterie.modes.desk.events import DeskOpened, DeskRenamed
from coterie.modes.desk.jobs import (
    BRANCH_JOB,
    COMPACT_JOB,
    MESSAGE_JOB,
    MESSAGE_PRIORITY,
    NOTIFY_JOB,
    SCHEDULE_JOB,
    WAKE_JOB,
    WORKER_JOB,
    ChannelOutcome,
)
from coterie.modes.desk.prompts import DeskPromptBuilder
from coterie.modes.desk.queries import Audience, BulletinQueries, DeskQueries, ScheduleQueries
from coterie.modes.desk.sandbox.sandbox import Sandbox
from coterie.modes.desk.schedules import ScheduleService
from coterie.modes.desk.settings import DeskSettings
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.text_safety import LeakGuard

Notify = Callable[[OutgoingMessage, str], Awaitable[None]]
"""Sends a message to a surface, once per token."""
_LEASE_S = 20.0
"""Jobs that a crash interrupted are taken up again after this time."""
_POLL_S = 0.5
"""A skipped message publishes no reply, so its job is polled, too."""
_GIVEN_UP = "I could not answer this after several attempts. `coterie doctor` shows the reason."


class ReplyWaiter:
    """Waits for the reply to a message of a person."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turns = TurnQueries(store)

    async def wait(self, room: str, turn: str) -> Turn | None:
        """Wait until the message was handled; None if it was skipped, answered with another or given up."""
        # Subscribed to replies only: a busy desk appends dozens of other events per second.
        subject = f"event.{subject_token(room)}.{AssistantTurn.kind}"
        async with self._store.bus.subscribe(subject, limit=1, when_slow=WhenSlow.DROP_OLDEST) as replies:
            while not self.handled(turn):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await anext(replies)
        return self.find(room, turn)

    def find(self, room: str, turn: str) -> Turn | None:
        return next((reply for reply in reversed(self._turns.latest(room, 50)) if reply.answers == turn), None)

    def handled(self, turn: str) -> bool:
        return self._job_state(turn) not in ("ready", "leased")

    def given_up(self, turn: str) -> bool:
        return self._job_state(turn) == "dead"

    def _job_state(self, turn: str) -> str:
        return self._store.reader.jobs.state_of(f"{MESSAGE_JOB}:{turn}") or ""


class ReplyNotifications:
    """Sends replies that no message asked for to every surface room of the conversation.

    It is a job that is stored with the reply. The delivery token is derived from the reply, so that a repeated run
    sends nothing twice.
    """

    def __init__(self, store: Store, notify: Notify | None) -> None:
        self._store = store
        self._turns = TurnQueries(store)
        self._notify = notify

    async def notify(self, job: Job) -> JobResult | None:
        room, reply = str(job.payload["room"]), str(job.payload["reply"])
        text = self._turns.turn(room, reply).text
        surface_rooms = self._store.query(
            "SELECT surface, room FROM surface_room WHERE context = ? AND NOT archived ORDER BY surface, room", (room,)
        )
        if self._notify is None or not text:
            return None
        for surface, surface_room in surface_rooms:
            token = hashlib.sha256(f"{reply}\n{surface}\n{surface_room}".encode()).hexdigest()[:20]
            target = RoomRef(surface=surface, id=surface_room)
            await self._notify(OutgoingMessage(room=target, text=text, thread=self._last_thread(target)), token)
        return None

    def _last_thread(self, room: RoomRef) -> str | None:
        """The thread, or the callback address, of the latest message in the room."""
        rows = self._store.query(
            "SELECT json_extract(incoming, '$.thread') FROM inbox WHERE surface = ? AND room = ?"
            " ORDER BY id DESC LIMIT 1",
            (room.surface, room.id),
        )
        return rows[0][0] if rows else None


class DeskService:
    """Builds the collaborators of the desk and offers its commands."""

    def __init__(
        self,
        store: Store,
        characters: Characters,
        memory: Memory,
        models: Models,
        workspaces: Workspaces,
        settings: DeskSettings,
        clock: Clock,
        extra_tools: Sequence[AgentTool] = (),
        notify: Notify | None = None,
        *,
        may_talk: MayTalk = lambda person, character: True,
        lease_s: float = _LEASE_S,
    ) -> None:
        self._store = store
        self._characters = characters
        self._workspaces = workspaces
        self._clock = clock
        self._lease_s = lease_s
        self._extra_tools: tuple[AgentTool, ...] = tuple(extra_tools)
        self._worker_tools: dict[str, list[AgentTool]] = {}
        """By character; cleared when tools change."""
        self.sandbox = Sandbox(settings)
        self.queries = DeskQueries(store)
        self.replies = ReplyWaiter(store)
        audience = Audience(store, memory)
        self.processes = Processes(store, self.queries, memory, audience)
        self.confirmations = Confirmations(self.queries, self.processes)
        self.skills = Skills(store, workspaces)
        self.bulletins = BulletinQueries(store, memory, audience)
        schedule_queries = ScheduleQueries(store)
        self.prompts = DeskPromptBuilder(
            self.queries,
            characters,
            workspaces,
            clock,
            self.bulletins,
            schedule_queries,
            self.skills,
            lambda: models.context_window(Role.CHANNEL) or UNKNOWN_WINDOW,
        )
        self.compactor = Compactor(store, self.queries, models, self.processes)
        deps = AgentDeps(self.queries, self.prompts, self.processes, models, LeakGuard(), schedule_queries, self.skills)
        channel = Channel(deps, self.compactor, audience, clock)
        self.character_questions = CharacterQuestions(
            store, characters, workspaces, memory, audience, models, clock, may_talk, settings.asks_a_day
        )
        branches = Branches(deps, audience, self.character_questions)
        workers = Workers(deps, self._tools)
        self.mcp_servers = McpServers(settings.tool_servers, self._worker_tools.clear)
        self.schedules = ScheduleService(store, deps, channel, clock)
        self.stalled_processes = StalledProcesses(store, self.queries, self.schedules.fail_lost_runs)
        self.maintenance = DeskMaintenance(
            store, self.queries, self.bulletins, audience, memory, models, clock, self.stalled_processes
        )
        self._job_groups: list[tuple[str, int, dict[str, Handler]]] = [
            (
                "messages",
                16,
                {
                    MESSAGE_JOB: channel.handle_message,
                    WAKE_JOB: channel.handle_wake,
                    NOTIFY_JOB: ReplyNotifications(store, notify).notify,
                },
            ),
            (
                "branches",
                16,
                {
                    BRANCH_JOB: branches.run_branch,
                    COMPACT_JOB: self.compactor.compact,
                    SCHEDULE_JOB: self.schedules.run,
                },
            ),
            ("workers", 64, {WORKER_JOB: workers.run_turn}),
        ]

    async def open(self, character: str, person: str, title: str = "") -> str:
        room, opened = self.plan_conversation(character, person, title)
        await self._store.append([opened])
        return room

    def plan_conversation(self, character: str, person: str, title: str = "") -> tuple[str, NewEvent]:
        """A new room, and the event that opens it."""
        room = f"room:{new_id()}"
        opened = DeskOpened(character=self._characters.get(character).id, person=person, title=title)
        return room, NewEvent(room, opened, person)

    async def send_message(self, room: str, text: str, *, person: str, key: str | None = None) -> str:
        """Store the message together with the job that answers it; returns the turn. Idempotent by key."""
        self.queries.chat(room)
        turn = new_id()
        payload = UserTurn(turn=turn, author=person, text=text, segments=(Segment(kind="dialogue", text=text),))
        job = NewJob(MESSAGE_JOB, f"{MESSAGE_JOB}:{turn}", {"room": room, "turn": turn}, priority=MESSAGE_PRIORITY)
        (event,) = await self._store.append([NewEvent(room, payload, person, key=key, turn=turn)], jobs=[job])
        return event.payload.turn if isinstance(event.payload, UserTurn) else turn

    async def start_worker(self, room: str, task: str, *, interactive: bool = False, person: str) -> str:
        """Start a worker on behalf of a person; the character receives the result."""
        outcome = ChannelOutcome(self.queries.chat(room), person)
        worker = outcome.start_worker(task, interactive)
        new_events = [event._replace(actor=person) for event in outcome.new_events]
        await self._store.append(new_events, jobs=outcome.jobs)
        return worker

    def add_tools(self, tools: Sequence[AgentTool]) -> None:
        """Offer more tools to every worker, from its next turn on."""
        self._extra_tools += tuple(tools)
        self._worker_tools.clear()

    def handlers(self) -> dict[str, Handler]:
        return {kind: handler for *_, handlers in self._job_groups for kind, handler in handlers.items()}

    def job_workers(self) -> dict[str, Worker]:
        """One job worker per kind of process, so that busy workers never delay a reply."""
        return {
            name: Worker(
                self._store.jobs,
                handlers,
                clock=self._clock,
                bus=self._store.bus,
                concurrency=concurrency,
                lease_s=self._lease_s,
                serialize_by=serialization_key,
            )
            for name, concurrency, handlers in self._job_groups
        }

    def workspace_folder(self, character: str) -> Path:
        """The folder of a character's commands and files, separate from the texts that its owner wrote."""
        folder = self._workspaces.folder(character) / "files"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def _tools(self, character: str) -> Sequence[AgentTool]:
        if character not in self._worker_tools:
            folder = self.workspace_folder(character)
            self._worker_tools[character] = [
                *worker_tools(self.sandbox, folder),
                *skill_tools(self.skills, character, folder),
                *self._extra_tools,
                *self.mcp_servers.tools,
            ]
        return self._worker_tools[character]


def serialization_key(job: Job) -> str | None:
    """At most one job at a time handles a conversation, and likewise a worker."""
    payload: Mapping[str, object] = job.payload
    if job.kind in (MESSAGE_JOB, WAKE_JOB):
        return f"talk:{payload['room']}"
    if job.kind == COMPACT_JOB:
        return f"compact:{payload['room']}"
    return f"work:{payload['room']}:{payload['worker']}" if job.kind == WORKER_JOB else None


class DeskConversation:
    """The desk as a conversation in a room of any surface."""

    mode = "desk"

    def __init__(self, store: Store, desk: DeskService, characters: Characters) -> None:
        self._store = store
        self._desk = desk
        self._characters = characters
        self._turns = TurnQueries(store)

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        room, opened = self._desk.plan_conversation(character, person, title)
        return NewChat(room, [opened])

    async def add_person(self, context: str, person: str) -> None:
        """Nothing to store: every message names its author."""

    async def remove_person(self, context: str, person: str) -> None:
        """Nothing to store: every message names its author."""

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[ReplyUpdate]:
        chat = self._desk.queries.chat(context)
        if answer := await self._desk.confirmations.handle_answer(chat, text, person):
            yield ReplyFinished(answer, self._characters.get(chat.character).name)
            return
        turn = await self._desk.send_message(context, text, person=person, key=key)
        yield await self._wait_for_reply(context, turn)

    def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        raise DeskError("A desk reply cannot be regenerated.", "Write what should be different.")

    async def stop(self, context: str) -> bool:
        """Cancel every active process of the conversation."""
        active = [process for process in self._desk.queries.processes(context) if process.active]
        for process in active:
            await self._desk.processes.cancel(context, process.id)
        return bool(active)

    def status(self, context: str) -> ChatStatus:
        chat = self._desk.queries.chat(context)
        active = [process for process in self._desk.queries.processes(context) if process.active]
        notes = tuple((f"{process.kind} {process.id}", process.status or process.task) for process in active)
        return ChatStatus(chat.title, self._characters.get(chat.character).name, self._turns.count(context), notes)

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([NewEvent(context, DeskRenamed(title=title))])

    async def _wait_for_reply(self, room: str, turn: str) -> ReplyFinished:
        name = self._characters.get(self._desk.queries.chat(room).character).name
        reply = await self._desk.replies.wait(room, turn)
        if reply is not None:
            return ReplyFinished(reply.text, name, reply.why)
        return ReplyFinished("", name, _GIVEN_UP if self._desk.replies.given_up(turn) else "")
