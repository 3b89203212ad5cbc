"""The desk as others use it: open a conversation, say something, look at what is going on, end it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.ids import new_id
from coterie.cast.roster import Roster
from coterie.cast.workspace import Workspaces
from coterie.engine.events import Segment, UserTurn
from coterie.kernel import Draft, Job, NewJob, Store
from coterie.kernel.worker import Handler, Worker
from coterie.llm.roles import Role
from coterie.llm.router import Models
from coterie.memory import Memory
from coterie.modes.desk.answers import Answers
from coterie.modes.desk.asking import Asking, MayTalk
from coterie.modes.desk.branches import Branches
from coterie.modes.desk.briefing import Briefing
from coterie.modes.desk.bulletins import Bulletins
from coterie.modes.desk.channel import Channel
from coterie.modes.desk.compactor import UNKNOWN_WINDOW, Compactor
from coterie.modes.desk.company import Company
from coterie.modes.desk.cortex import Cortex
from coterie.modes.desk.decisions import Decisions
from coterie.modes.desk.errand import BRANCH, COMPACT, MESSAGE, PERSON_WAITS, SCHEDULE, TELL, WAKE, WORKER, Errand
from coterie.modes.desk.events import DeskOpened
from coterie.modes.desk.kit import Kit
from coterie.modes.desk.leaks import LeakGuard
from coterie.modes.desk.officebook import OfficeBook
from coterie.modes.desk.processes import Processes
from coterie.modes.desk.sandbox import Sandbox
from coterie.modes.desk.schedules import Schedules
from coterie.modes.desk.settings import DeskSettings
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.telling import Notify, Telling
from coterie.modes.desk.timetable import ScheduleBook
from coterie.modes.desk.tools import Tool
from coterie.modes.desk.toolservers import ToolServers
from coterie.modes.desk.watch import Watch
from coterie.modes.desk.workers import Workers
from coterie.modes.desk.worktools import skill_tools, worker_tools

_LEASE_S = 20.0
"""After a crash, what was under way is taken up again this soon."""


class Desk:
    def __init__(
        self,
        store: Store,
        roster: Roster,
        memory: Memory,
        models: Models,
        workspaces: Workspaces,
        settings: DeskSettings,
        clock: Clock,
        more_tools: Sequence[Tool] = (),
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
        self._more_tools: tuple[Tool, ...] = tuple(more_tools)
        self._tools_of: dict[str, list[Tool]] = {}
        self.sandbox = Sandbox(settings)
        self.book = OfficeBook(store)
        self.answers = Answers(store)
        company = Company(store, memory)
        self.processes = Processes(store, self.book, memory, company)
        self.decisions = Decisions(self.book, self.processes)
        self.skills = Skills(store, workspaces)
        self.bulletins = Bulletins(store, memory, company)
        timetable = ScheduleBook(store)
        self.briefing = Briefing(
            self.book,
            roster,
            workspaces,
            clock,
            self.bulletins,
            timetable,
            self.skills,
            lambda: models.window(Role.CHANNEL) or UNKNOWN_WINDOW,
        )
        self.compactor = Compactor(store, self.book, models, self.processes)
        kit = Kit(self.book, self.briefing, self.processes, models, LeakGuard(), timetable, self.skills)
        channel = Channel(kit, self.compactor, company, clock)
        self.asking = Asking(store, roster, workspaces, memory, company, models, clock, may_talk, settings.asks_a_day)
        branches = Branches(kit, company, self.asking)
        workers = Workers(kit, self._tools)
        self.tool_servers = ToolServers(settings.tool_servers, self._tools_of.clear)
        self.schedules = Schedules(store, kit, channel, clock)
        self.watch = Watch(store, self.book, self.schedules.mend)
        self.cortex = Cortex(store, self.book, self.bulletins, company, memory, models, clock, self.watch)
        self._lanes: list[tuple[int, dict[str, Handler]]] = [
            (16, {MESSAGE: channel.message, WAKE: channel.wake, TELL: Telling(store, notify).tell}),
            (16, {BRANCH: branches.think, COMPACT: self.compactor.compact, SCHEDULE: self.schedules.run}),
            (64, {WORKER: workers.work}),
        ]

    async def open(self, character: str, person: str, title: str = "") -> str:
        bot = self._roster.bot(character)
        room = f"room:{new_id()}"
        await self._store.append([Draft(room, DeskOpened(character=bot.id, person=person, title=title), person)])
        return room

    async def say(self, room: str, text: str, *, person: str, key: str | None = None) -> str:
        """Recorded before this returns, with the work of answering it. The same key again changes nothing."""
        self.book.chat(room)
        turn = new_id()
        payload = UserTurn(turn=turn, author=person, text=text, segments=(Segment(kind="dialogue", text=text),))
        job = NewJob(MESSAGE, f"{MESSAGE}:{turn}", {"room": room, "turn": turn}, priority=PERSON_WAITS)
        told = await self._store.append([Draft(room, payload, person, key=key, turn=turn)], jobs=[job])
        said = told[0].payload
        return said.turn if isinstance(said, UserTurn) else turn

    async def hire(self, room: str, task: str, *, interactive: bool = False, person: str) -> str:
        """A person gives a worker its task, without the character deciding it; the character hears the result."""
        errand = Errand(self.book.chat(room), person)
        worker = errand.hire(task, interactive)
        drafts = [draft._replace(actor=person) for draft in errand.drafts]
        await self._store.append(drafts, jobs=errand.jobs)
        return worker

    def add_tools(self, tools: Sequence[Tool]) -> None:
        """For every worker from its next turn on."""
        self._more_tools += tuple(tools)
        self._tools_of.clear()

    def handlers(self) -> dict[str, Handler]:
        return {kind: handler for _, lane in self._lanes for kind, handler in lane.items()}

    def workers(self) -> list[Worker]:
        """Each kind of process has hands of its own: however many are at work, somebody is free to talk."""
        return [
            Worker(
                self._store.jobs,
                lane,
                clock=self._clock,
                bus=self._store.bus,
                at_once=at_once,
                lease_s=self._lease_s,
                apart=one_word_at_a_time,
            )
            for at_once, lane in self._lanes
        ]

    def folder(self, character: str) -> Path:
        """Where a character's commands and files are: beside what its owner wrote about it, not among it."""
        folder = self._workspaces.folder(character) / "files"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def _tools(self, character: str) -> Sequence[Tool]:
        if character not in self._tools_of:
            skilled = skill_tools(self.skills, character, self.folder(character))
            own = worker_tools(self.sandbox, self.folder(character))
            self._tools_of[character] = [*own, *skilled, *self._more_tools, *self.tool_servers.tools]
        return self._tools_of[character]


def one_word_at_a_time(job: Job) -> str | None:
    """A conversation is looked at by one at a time, and so is each worker."""
    payload: Mapping[str, object] = job.payload
    if job.kind in (MESSAGE, WAKE):
        return f"talk:{payload['room']}"
    if job.kind == COMPACT:
        return f"compact:{payload['room']}"
    return f"work:{payload['room']}:{payload['worker']}" if job.kind == WORKER else None
