"""The desk as others use it: open a conversation, say something, look at what is going on, end it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.ids import new_id
from coterie.characters.service import Characters
from coterie.characters.workspace import Workspaces
from coterie.conversation.events import Segment, UserTurn
from coterie.conversation.turns import TurnQueries
from coterie.eventstore import Job, NewEvent, NewJob, Store
from coterie.eventstore.worker import Handler, Worker
from coterie.llm.router import Models
from coterie.llm.settings import Role
from coterie.memory import Memory
from coterie.messaging.ports import ChatStatus, NewChat, ReplyFinished, ReplyUpdate
from coterie.messaging.protocol import Attachment
from coterie.modes.desk.agents.branches import Branches, CharacterQuestions, MayTalk
from coterie.modes.desk.agents.channel import Channel
from coterie.modes.desk.agents.compactor import UNKNOWN_WINDOW, Compactor
from coterie.modes.desk.agents.maintenance import DeskMaintenance, StalledProcesses
from coterie.modes.desk.agents.processes import AgentDeps, Confirmations, Processes
from coterie.modes.desk.agents.tools import AgentTool
from coterie.modes.desk.agents.workers import Workers, skill_tools, worker_tools
from coterie.modes.desk.audience import Audience, Bulletins
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
from coterie.modes.desk.mcp_client import McpServers
from coterie.modes.desk.notifications import Notify, ReplyNotifications, ReplyWaiter
from coterie.modes.desk.prompts import PromptBuilder
from coterie.modes.desk.queries import DeskQueries, ScheduleQueries
from coterie.modes.desk.sandbox.sandbox import Sandbox
from coterie.modes.desk.schedules import ScheduleService
from coterie.modes.desk.settings import DeskSettings
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.text_safety import LeakGuard

_LEASE_S = 20.0
"""After a crash, what was under way is taken up again this soon."""


class DeskService:
    def __init__(
        self,
        store: Store,
        roster: Characters,
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
        self._roster = roster
        self._workspaces = workspaces
        self._clock = clock
        self._lease_s = lease_s
        self._more_tools: tuple[AgentTool, ...] = tuple(extra_tools)
        self._tools_of: dict[str, list[AgentTool]] = {}
        self.sandbox = Sandbox(settings)
        self.queries = DeskQueries(store)
        self.replies = ReplyWaiter(store)
        company = Audience(store, memory)
        self.processes = Processes(store, self.queries, memory, company)
        self.confirmations = Confirmations(self.queries, self.processes)
        self.skills = Skills(store, workspaces)
        self.bulletins = Bulletins(store, memory, company)
        timetable = ScheduleQueries(store)
        self.prompts = PromptBuilder(
            self.queries,
            roster,
            workspaces,
            clock,
            self.bulletins,
            timetable,
            self.skills,
            lambda: models.context_window(Role.CHANNEL) or UNKNOWN_WINDOW,
        )
        self.compactor = Compactor(store, self.queries, models, self.processes)
        kit = AgentDeps(self.queries, self.prompts, self.processes, models, LeakGuard(), timetable, self.skills)
        channel = Channel(kit, self.compactor, company, clock)
        self.character_questions = CharacterQuestions(
            store, roster, workspaces, memory, company, models, clock, may_talk, settings.asks_a_day
        )
        branches = Branches(kit, company, self.character_questions)
        workers = Workers(kit, self._tools)
        self.mcp_servers = McpServers(settings.tool_servers, self._tools_of.clear)
        self.schedules = ScheduleService(store, kit, channel, clock)
        self.stalled_processes = StalledProcesses(store, self.queries, self.schedules.fail_lost_runs)
        self.maintenance = DeskMaintenance(
            store, self.queries, self.bulletins, company, memory, models, clock, self.stalled_processes
        )
        self._lanes: list[tuple[int, dict[str, Handler]]] = [
            (
                16,
                {
                    MESSAGE_JOB: channel.handle_message,
                    WAKE_JOB: channel.handle_wake,
                    NOTIFY_JOB: ReplyNotifications(store, notify).notify,
                },
            ),
            (
                16,
                {
                    BRANCH_JOB: branches.run_branch,
                    COMPACT_JOB: self.compactor.compact,
                    SCHEDULE_JOB: self.schedules.run,
                },
            ),
            (64, {WORKER_JOB: workers.run_turn}),
        ]

    async def open(self, character: str, person: str, title: str = "") -> str:
        bot = self._roster.get(character)
        room = f"room:{new_id()}"
        await self._store.append([NewEvent(room, DeskOpened(character=bot.id, person=person, title=title), person)])
        return room

    async def send_message(self, room: str, text: str, *, person: str, key: str | None = None) -> str:
        """Recorded before this returns, with the work of answering it. The same key again changes nothing."""
        self.queries.chat(room)
        turn = new_id()
        payload = UserTurn(turn=turn, author=person, text=text, segments=(Segment(kind="dialogue", text=text),))
        job = NewJob(MESSAGE_JOB, f"{MESSAGE_JOB}:{turn}", {"room": room, "turn": turn}, priority=MESSAGE_PRIORITY)
        told = await self._store.append([NewEvent(room, payload, person, key=key, turn=turn)], jobs=[job])
        said = told[0].payload
        return said.turn if isinstance(said, UserTurn) else turn

    async def start_worker(self, room: str, task: str, *, interactive: bool = False, person: str) -> str:
        """A person gives a worker its task, without the character deciding it; the character hears the result."""
        errand = ChannelOutcome(self.queries.chat(room), person)
        worker = errand.start_worker(task, interactive)
        drafts = [draft._replace(actor=person) for draft in errand.new_events]
        await self._store.append(drafts, jobs=errand.jobs)
        return worker

    def add_tools(self, tools: Sequence[AgentTool]) -> None:
        """For every worker from its next turn on."""
        self._more_tools += tuple(tools)
        self._tools_of.clear()

    def handlers(self) -> dict[str, Handler]:
        return {kind: handler for _, lane in self._lanes for kind, handler in lane.items()}

    def job_workers(self) -> list[Worker]:
        """Each kind of process has hands of its own: however many are at work, somebody is free to talk."""
        return [
            Worker(
                self._store.jobs,
                lane,
                clock=self._clock,
                bus=self._store.bus,
                concurrency=at_once,
                lease_s=self._lease_s,
                serialize_by=serialization_key,
            )
            for at_once, lane in self._lanes
        ]

    def workspace_folder(self, character: str) -> Path:
        """Where a character's commands and files are: beside what its owner wrote about it, not among it."""
        folder = self._workspaces.folder(character) / "files"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def _tools(self, character: str) -> Sequence[AgentTool]:
        if character not in self._tools_of:
            skilled = skill_tools(self.skills, character, self.workspace_folder(character))
            own = worker_tools(self.sandbox, self.workspace_folder(character))
            self._tools_of[character] = [*own, *skilled, *self._more_tools, *self.mcp_servers.tools]
        return self._tools_of[character]


def serialization_key(job: Job) -> str | None:
    """A conversation is looked at by one at a time, and so is each worker."""
    payload: Mapping[str, object] = job.payload
    if job.kind in (MESSAGE_JOB, WAKE_JOB):
        return f"talk:{payload['room']}"
    if job.kind == COMPACT_JOB:
        return f"compact:{payload['room']}"
    return f"work:{payload['room']}:{payload['worker']}" if job.kind == WORKER_JOB else None


# The desk held in a room of any surface. P2
#
# What is said is recorded with the work of answering it; this only waits for the answer and hands it on.


_GIVEN_UP = "I could not answer this, however often I tried. Whoever runs me finds the reason with `coterie doctor`."


class DeskConversation:
    mode = "desk"

    def __init__(self, store: Store, desk: DeskService, roster: Characters) -> None:
        self._store = store
        self._desk = desk
        self._roster = roster
        self._timeline = TurnQueries(store)

    async def open(self, person: str, character: str, title: str = "", *, at_once: bool = False) -> NewChat:
        room = f"room:{new_id()}"
        bot = self._roster.get(character)
        return NewChat(room, [NewEvent(room, DeskOpened(character=bot.id, person=person, title=title), person)])

    async def add_person(self, context: str, person: str) -> None:
        """Every message carries who wrote it."""

    async def remove_person(self, context: str, person: str) -> None:
        """Nothing is kept of who was in."""

    async def send_message(
        self, context: str, text: str, *, person: str, key: str, attachments: Sequence[Attachment] = ()
    ) -> AsyncIterator[ReplyUpdate]:
        chat = self._desk.queries.chat(context)
        if decided := await self._desk.confirmations.handle_answer(chat, text, person):
            yield ReplyFinished(decided, self._roster.get(chat.character).name)
            return
        turn = await self._desk.send_message(context, text, person=person, key=key)
        yield await self._answer(context, turn)

    def retry(self, context: str, *, person: str) -> AsyncIterator[ReplyUpdate]:
        raise DeskError("What was done at the desk cannot be done over.", "Say what should be different.")

    async def stop(self, context: str) -> bool:
        """Everything that goes on in this conversation."""
        busy = [process for process in self._desk.queries.processes(context) if process.active]
        for process in busy:
            await self._desk.processes.cancel(context, process.id)
        return bool(busy)

    def status(self, context: str) -> ChatStatus:
        chat = self._desk.queries.chat(context)
        busy = [process for process in self._desk.queries.processes(context) if process.active]
        notes = tuple((f"{process.kind} {process.id}", process.status or process.task) for process in busy)
        return ChatStatus(chat.title, self._roster.get(chat.character).name, self._timeline.count(context), notes)

    async def rename(self, context: str, title: str) -> None:
        await self._store.append([NewEvent(context, DeskRenamed(title=title))])

    async def _answer(self, room: str, turn: str) -> ReplyFinished:
        name = self._roster.get(self._desk.queries.chat(room).character).name
        answer = await self._desk.replies.wait(room, turn)
        if answer is not None:
            return ReplyFinished(answer.text, name, answer.why)
        return ReplyFinished("", name, _GIVEN_UP if self._desk.replies.given_up(turn) else "")
