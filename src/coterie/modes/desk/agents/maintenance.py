"""Background maintenance of the desk: summaries of long conversations, stalled processes, bulletins."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from pydantic import BaseModel, Field

from coterie.base.clock import Clock
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.base.supervisor import pause, unless_stopped
from coterie.characters import Workspaces, declare_prompt
from coterie.eventstore import AnyEvent, BusMessage, Job, JobResult, NewEvent, NewJob, Store, WhenSlow
from coterie.llm import Caller, ModelError, Models, Prompt, PromptMessage, Role, classify
from coterie.memory import Memory, MemoryAdded, MemoryForgotten, MemoryMerged, MemorySuperseded, MemoryType, NewMemory
from coterie.modes.desk.agents.processes import Processes, end_event, end_key
from coterie.modes.desk.errors import SummaryFailed
from coterie.modes.desk.events import BulletinWritten, HistoryCompacted
from coterie.modes.desk.jobs import BRANCH_JOB, COMPACT_JOB, WORKER_JOB, wake_job
from coterie.modes.desk.queries import Audience, BulletinQueries, DeskChat, DeskQueries, HistoryEntry, Process
from coterie.modes.desk.text_safety import UNTRUSTED_TEXT_RULE, LeakGuard, mark_untrusted

_log = get_logger(__name__)

SUMMARISE_AT, SUMMARISE_HALF_AT, DROP_AT = 0.80, 0.85, 0.95
UNKNOWN_WINDOW = 8_192
"""Tokens assumed where the context window of the model is unknown."""
INTERVAL_S = 30.0
MAX_SIGNALS = 200
MAX_FAILURES = 3
PAUSE = timedelta(minutes=30)
MAX_WORDS = 500
_MEMORIES = 40
_SIGNALS = tuple(payload.kind for payload in (MemoryAdded, MemoryForgotten, MemoryMerged, MemorySuperseded))
_BRIEFING = declare_prompt(
    "cortex",
    "Daily briefing",
    "What a character should have in mind now, written from its memories.",
    "Write the short briefing that this character should have in mind now: who it is dealing with, what is planned, "
    f"decided, promised and open. Plain sentences, at most {MAX_WORDS} words, nothing that is not in the material.",
)
_SUMMARY = declare_prompt(
    "compactor",
    "Desk summary",
    "How older parts of a desk conversation are shortened.",
    "Summarise this conversation.",
)
_GIVEN_UP = "It was retried as often as allowed and never finished."


class SummaryMemory(BaseModel):
    text: str
    type: MemoryType = "fact"


class ConversationSummary(BaseModel):
    """Summary of a part of a conversation."""

    summary: str = Field(default="", description="What was said, decided, promised and left open, in plain sentences.")
    memories: list[SummaryMemory] = Field(default=[], description="What is worth remembering for good.")


class Compactor:
    """Keeps a conversation within the context window of its model without making it wait.

    At 80 % the oldest 30 % are summarised in a job, at 85 % the oldest half; at 95 % the oldest half is dropped at once
    with a marker. The latest message of a person and everything after it stay. The swap is one event, and a failed
    summary changes nothing. The turns themselves stay in the log.
    """

    def __init__(
        self, store: Store, queries: DeskQueries, models: Models, processes: Processes, workspaces: Workspaces
    ) -> None:
        self._store = store
        self._workspaces = workspaces
        self._queries = queries
        self._models = models
        self._processes = processes
        self._guard = LeakGuard()

    async def check_size(self, chat: DeskChat, messages: Sequence[PromptMessage]) -> tuple[bool, list[NewJob]]:
        """Before a prompt is sent: whether lines were dropped at once, and the jobs to enqueue."""
        await self._models.tokens.prepare(self._models.catalogue.chain(Role.CHANNEL)[0])
        fullness = self.fullness(messages)
        lines = self._queries.history(chat.room)
        if fullness < SUMMARISE_AT or not _oldest_lines(lines, 1.0):
            return False, []
        if fullness >= DROP_AT:
            await self._drop(chat, _oldest_lines(lines, 0.5))
            return True, []
        share = 0.5 if fullness >= SUMMARISE_HALF_AT else 0.3
        key = f"{COMPACT_JOB}:{chat.room}:{lines[0].seq}:{share}"
        payload = {"room": chat.room, "first": lines[0].seq, "upto": _oldest_lines(lines, share)[-1].seq}
        return False, [NewJob(COMPACT_JOB, key, payload, max_attempts=3)]

    def fullness(self, messages: Sequence[PromptMessage]) -> float:
        target = self._models.catalogue.chain(Role.CHANNEL)[0]
        used = self._models.tokens.count_prompt(target, Prompt(messages=tuple(messages)))
        return used / (self._models.context_window(Role.CHANNEL) or UNKNOWN_WINDOW)

    async def compact(self, job: Job) -> JobResult | None:
        chat = self._queries.chat(str(job.payload["room"]))
        lines = [line for line in self._queries.history(chat.room) if line.seq <= int(job.payload["upto"])]
        if not lines or lines[0].seq != job.payload["first"]:
            return None  # summarised by an earlier job
        text = "\n".join(f"{line.role}: {line.text}" for line in lines)
        prompt = Prompt.of(
            mark_untrusted(text, "the conversation"),
            system=f"{self._workspaces.prompts(chat.character).text(_SUMMARY)} {UNTRUSTED_TEXT_RULE}",
        )
        summary = await classify(
            self._models, ConversationSummary, prompt, role=Role.COMPACTOR, caller=Caller(chat.room, chat.character)
        )
        if not summary.ok or not summary.value.summary.strip():
            raise SummaryFailed("The conversation could not be summarised.", "It is tried again; nothing was changed.")
        if self._queries.history(chat.room)[0].seq != job.payload["first"]:
            return None
        new_events: list[NewEvent] = []
        for found in summary.value.memories[:20]:
            memory = NewMemory(
                self._guard.redact(found.text), chat.character, chat.room, type=found.type, sources=(f"{lines[0].seq}",)
            )
            new_events += self._processes.memory_events(chat, memory)
        payload = HistoryCompacted(upto=lines[-1].seq, summary=self._guard.redact(summary.value.summary.strip()))
        return JobResult([*new_events, NewEvent(chat.room, payload)])

    async def _drop(self, chat: DeskChat, lines: Sequence[HistoryEntry]) -> None:
        marker = f"[{len(lines)} older messages are left out here; `channel_recall` in a branch finds them.]"
        payload = HistoryCompacted(upto=lines[-1].seq, summary=marker, dropped=True)
        await self._store.append([NewEvent(chat.room, payload, key=f"desk_drop:{chat.room}:{lines[-1].seq}")])


def _oldest_lines(lines: Sequence[HistoryEntry], share: float) -> Sequence[HistoryEntry]:
    """The oldest lines, without the latest message of a person, which is being answered."""
    messages = [index for index, line in enumerate(lines) if line.role == "user"]
    return lines[: min(max(1, int(len(lines) * share)), messages[-1] if messages else len(lines) - 1)]


class StalledProcesses:
    """Ends branches, workers and schedule runs whose job was given up, at the start and whenever a job dies."""

    def __init__(self, store: Store, queries: DeskQueries, fail_lost_runs: Callable[[], Awaitable[int]]) -> None:
        self._store = store
        self._queries = queries
        self._fail_lost_runs = fail_lost_runs

    async def run(self, stop: asyncio.Event) -> None:
        async with self._store.bus.subscribe(
            "event.instance.job_died", limit=1, when_slow=WhenSlow.DROP_OLDEST
        ) as dead_jobs:
            await self.end_stalled()
            while await unless_stopped(stop, _next(dead_jobs)) is not None:
                await self.end_stalled()

    async def end_stalled(self) -> int:
        """End processes without a pending job; returns how many."""
        stalled = [
            process
            for process in self._queries.active_processes()
            if process.state == "running" and not self._has_job(process)
        ]
        for process in stalled:
            new_event = NewEvent(process.room, end_event(process, "failed", _GIVEN_UP), key=end_key(process))
            await self._store.append([new_event], jobs=[wake_job(process.room, process.id, "end")])
        return len(stalled) + await self._fail_lost_runs()

    def _has_job(self, process: Process) -> bool:
        kind = BRANCH_JOB if process.kind == "branch" else WORKER_JOB
        return bool(self._store.reader.jobs.pending(kind, {"room": process.room, process.kind: process.id}))


async def _next(messages: AsyncIterator[BusMessage]) -> BusMessage:
    return await anext(messages)


class DeskMaintenance:
    """Merges duplicate memories and rewrites bulletins when the memory of a character changed.

    It reads events every 30 s, so an unchanged log costs nothing. Each person a character talks with has a bulletin of
    their own, made from what may be disclosed to them. Three model failures in a row pause it for 30 minutes.
    """

    def __init__(
        self,
        store: Store,
        queries: DeskQueries,
        bulletins: BulletinQueries,
        audience: Audience,
        memory: Memory,
        models: Models,
        clock: Clock,
        stalled: StalledProcesses,
        workspaces: Workspaces,
    ) -> None:
        self._store = store
        self._workspaces = workspaces
        self._queries = queries
        self._bulletins = bulletins
        self._audience = audience
        self._memory = memory
        self._models = models
        self._clock = clock
        self._stalled = stalled
        self._guard = LeakGuard()
        self._last_read_id: int | None = None
        self._interrupted = False
        """Whether the last run failed, so that its work is left."""
        self._signals: dict[str, deque[str]] = {}
        self._changed: dict[str, int] = {}
        """Characters whose memory changed, and the id of the latest change."""
        self._failures = 0
        self._paused_until: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await pause(stop, INTERVAL_S)
            if not stop.is_set():
                await self.tick()

    async def tick(self) -> int:
        """Run once; returns the number of bulletins written."""
        last = self._store.reader.last_id()
        if last == self._last_read_id and not self._interrupted:
            return 0
        self._interrupted = True
        self._read_changes(last)
        written = await self._write_bulletins()
        self._interrupted = False
        return written

    async def _write_bulletins(self) -> int:
        await self._stalled.end_stalled()
        if not self._changed or (self._paused_until is not None and self._clock.now() < self._paused_until):
            return 0
        await asyncio.to_thread(self._memory.maintain)
        written = 0
        for character, upto in list(self._changed.items()):
            for chat in self._latest_chats(character):
                if self._bulletins.upto(character, chat.person) < upto or self._bulletins.stale(chat):
                    if not await self._write_bulletin(chat, upto):
                        return written
                    written += 1
            del self._changed[character]
        return written

    def _read_changes(self, last: int) -> None:
        characters = {chat.character for chat in self._queries.chats()}
        if self._last_read_id is None:
            for character in characters:
                if newest := self._latest_memory_event(character):
                    self._changed[character] = newest
        else:
            after = self._last_read_id
            while page := self._store.reader.read(after=after, kinds=_SIGNALS):
                for event in page:
                    self._count_signal(event, characters)
                after = page[-1].id
        for character in characters - set(self._changed):
            # A rewind removes memories without an event about them.
            if any(self._bulletins.stale(chat) for chat in self._latest_chats(character)):
                self._changed[character] = self._latest_memory_event(character)
        self._last_read_id = last

    def _count_signal(self, event: AnyEvent, characters: set[str]) -> None:
        owner = str(getattr(event.payload, "owner", ""))
        if owner in characters:
            self._signals.setdefault(owner, deque(maxlen=MAX_SIGNALS)).append(event.kind)
            self._changed[owner] = event.id

    def _latest_memory_event(self, character: str) -> int:
        """The event id of the newest memory, which stands for changes before this process started."""
        rows = self._store.query("SELECT coalesce(max(event), 0) FROM memory WHERE owner = ?", (character,))
        return int(rows[0][0])

    def _latest_chats(self, character: str) -> list[DeskChat]:
        """The latest conversation with each person."""
        latest: dict[str, DeskChat] = {}
        for chat in self._queries.chats():
            if chat.character == character:
                latest.setdefault(chat.person, chat)
        return list(latest.values())

    async def _write_bulletin(self, chat: DeskChat, upto: int) -> bool:
        topics = "goals, plans, decisions, promises and preferences"
        viewpoint = self._audience.viewpoint_of_person(chat)
        recalled = await asyncio.to_thread(self._memory.recall_as, viewpoint, topics, k=_MEMORIES)
        if not recalled:
            if self._bulletins.stale(chat):
                await self._append_bulletin(chat, "", upto, ())
            return True
        prompt = Prompt.of(
            self._material(chat, [memory.text_with_speaker for memory in recalled]),
            system=f"{self._workspaces.prompts(chat.character).text(_BRIEFING)} {UNTRUSTED_TEXT_RULE}",
            max_tokens=900,
        )
        try:
            answer = await self._models.ask(Role.CORTEX, prompt, caller=Caller(chat.room, chat.character))
        except ModelError as error:
            self._record_failure(error)
            return False
        self._failures, self._paused_until = 0, None
        words = self._guard.redact(answer.text).split()
        await self._append_bulletin(chat, " ".join(words[:MAX_WORDS]), upto, tuple(memory.id for memory in recalled))
        return True

    async def _append_bulletin(self, chat: DeskChat, text: str, upto: int, memories: tuple[str, ...]) -> None:
        payload = BulletinWritten(character=chat.character, person=chat.person, text=text, upto=upto, memories=memories)
        await self._store.append([NewEvent(f"cast:{chat.character}", payload, "cortex")])

    def _material(self, chat: DeskChat, memories: Sequence[str]) -> str:
        signals = Counter(self._signals.get(chat.character, ()))
        changes = ", ".join(f"{kind} × {times}" for kind, times in signals.most_common())
        text = mark_untrusted("\n".join(f"- {memory}" for memory in memories), "its memory")
        return f"{text}\n\nRecent changes: {changes}" if changes else text

    def _record_failure(self, error: ModelError) -> None:
        self._failures += 1
        _log.warning("bulletin failed", failures=self._failures, error=redact(str(error)))
        if self._failures >= MAX_FAILURES:
            self._paused_until, self._failures = self._clock.now() + PAUSE, 0
