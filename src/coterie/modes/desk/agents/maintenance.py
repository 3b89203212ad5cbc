"""Looks after what nobody works on any more: a branch or a worker whose job was given up ends, visibly. D2, D15

Without it they would stand in the status block as running for ever, and a schedule would never be due again. It acts
when a job dies and at the start, and costs nothing in between.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from coterie.base.clock import Clock
from coterie.base.logging import get_logger
from coterie.base.redaction import redact
from coterie.eventstore import AnyEvent, NewEvent, Store, WhenSlow
from coterie.llm.errors import ModelError
from coterie.llm.messages import Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.settings import Role
from coterie.memory import Memory
from coterie.memory.events import MemoryAdded, MemoryForgotten, MemoryMerged, MemorySuperseded
from coterie.modes.desk.agents.processes import end_key
from coterie.modes.desk.audience import Audience, Bulletins
from coterie.modes.desk.events import BranchEnded, BulletinWritten, WorkerEnded
from coterie.modes.desk.jobs import BRANCH_JOB, WORKER_JOB, wake_job
from coterie.modes.desk.queries import DeskChat, DeskQueries, Process
from coterie.modes.desk.text_safety import UNTRUSTED_TEXT_RULE, LeakGuard, mark_untrusted

_TOLD = "It was started as often as it may be, and never came to an end."


class StalledProcesses:
    def __init__(self, store: Store, book: DeskQueries, mend_schedules: Callable[[], Awaitable[int]]) -> None:
        self._store = store
        self._book = book
        self._mend_schedules = mend_schedules

    async def run(self, stop: asyncio.Event) -> None:
        async with self._store.bus.subscribe(
            "event.instance.job_died", limit=1, when_slow=WhenSlow.DROP_OLDEST
        ) as news:
            await self.end_stalled()
            stopping = asyncio.create_task(stop.wait())
            while not stop.is_set():
                died = asyncio.ensure_future(anext(news))
                await asyncio.wait({died, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if died.done():
                    await self.end_stalled()
                died.cancel()

    async def end_stalled(self) -> int:
        """End what nobody works on; how many those were."""
        lost = [
            process
            for process in self._book.active_processes()
            if process.state == "running" and not self._at_work(process)
        ]
        for process in lost:
            draft = NewEvent(process.room, _given_up(process), key=end_key(process))
            await self._store.append([draft], jobs=[wake_job(process.room, process.id, "end")])
        return len(lost) + await self._mend_schedules()

    def _at_work(self, process: Process) -> bool:
        kind = BRANCH_JOB if process.kind == "branch" else WORKER_JOB
        return bool(self._store.reader.jobs.pending(kind, {"room": process.room, process.kind: process.id}))


def _given_up(process: Process) -> BranchEnded | WorkerEnded:
    if process.kind == "branch":
        return BranchEnded(branch=process.id, state="failed", conclusion=_TOLD)
    return WorkerEnded(worker=process.id, state="failed", result=_TOLD)


# The cortex: one quiet look every thirty seconds at what changed, by signals and not by text. D8
#
# Where a character's memory changed, near-duplicates are merged and its bulletin is written anew: one model call for each
# person it talks with. Where nothing changed nothing is done, so that an idle day costs nothing. Three failures in a row
# open a breaker, and it rests. Bulletins are made apart for each person, from what may be said before them.


EVERY_S = 30.0
MOST_SIGNALS = 200
MOST_FAILURES = 3
REST = timedelta(minutes=30)
LONGEST_WORDS = 500
_MEMORIES = 40
_SIGNALS = tuple(payload.kind for payload in (MemoryAdded, MemoryForgotten, MemoryMerged, MemorySuperseded))
_WRITE = (
    "Write the short briefing that this character should have in mind now: who it is dealing with, what is planned, "
    f"decided, promised and open. Plain sentences, at most {LONGEST_WORDS} words, nothing that is not in the material. "
)
_log = get_logger(__name__)


class DeskMaintenance:
    def __init__(
        self,
        store: Store,
        book: DeskQueries,
        bulletins: Bulletins,
        company: Audience,
        memory: Memory,
        models: Models,
        clock: Clock,
        watch: StalledProcesses,
    ) -> None:
        self._store = store
        self._book = book
        self._bulletins = bulletins
        self._company = company
        self._memory = memory
        self._models = models
        self._clock = clock
        self._watch = watch
        self._guard = LeakGuard()
        self._read_to: int | None = None
        self._signals: dict[str, deque[str]] = {}
        self._changed: dict[str, int] = {}
        """Characters whose memory changed, and the event it changed with."""
        self._failures = 0
        self._rests_until: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), EVERY_S)
            if not stop.is_set():
                try:
                    await self.tick()
                except Exception:
                    _log.exception("the cortex could not do its round")

    async def tick(self) -> int:
        """One look; how many bulletins were written."""
        last = self._store.reader.last_id()
        if last == self._read_to:
            return 0
        self._notice(last)
        await self._watch.end_stalled()
        if not self._changed or (self._rests_until is not None and self._clock.now() < self._rests_until):
            return 0
        await asyncio.to_thread(self._memory.maintain)
        written = 0
        for character, upto in list(self._changed.items()):
            for chat in self._audiences(character):
                if self._bulletins.upto(character, chat.person) < upto or self._bulletins.stale(chat):
                    if not await self._write(chat, upto):
                        return written
                    written += 1
            del self._changed[character]
        return written

    def _notice(self, last: int) -> None:
        characters = {chat.character for chat in self._book.chats()}
        if self._read_to is None:
            for character in characters:
                if newest := self._newest(character):
                    self._changed[character] = newest
        else:
            after = self._read_to
            while page := self._store.reader.read(after=after, kinds=_SIGNALS):
                for event in page:
                    self._signal(event, characters)
                after = page[-1].id
        for character in characters - set(self._changed):
            # A rewind takes memories back without a word about them.
            if any(self._bulletins.stale(chat) for chat in self._audiences(character)):
                self._changed[character] = self._newest(character)
        self._read_to = last

    def _signal(self, event: AnyEvent, characters: set[str]) -> None:
        owner = str(getattr(event.payload, "owner", ""))
        if owner in characters:
            self._signals.setdefault(owner, deque(maxlen=MOST_SIGNALS)).append(event.kind)
            self._changed[owner] = event.id

    def _newest(self, character: str) -> int:
        """The event of its newest memory: all that is known of changes before this process began."""
        rows = self._store.query("SELECT coalesce(max(event), 0) FROM memory WHERE owner = ?", (character,))
        return int(rows[0][0])

    def _audiences(self, character: str) -> list[DeskChat]:
        """The newest conversation with each person."""
        found: dict[str, DeskChat] = {}
        for chat in self._book.chats():
            if chat.character == character:
                found.setdefault(chat.person, chat)
        return list(found.values())

    async def _write(self, chat: DeskChat, upto: int) -> bool:
        about = "goals, plans, decisions, promises and preferences"
        view = self._company.viewpoint_of_person(chat)
        recalled = await asyncio.to_thread(self._memory.recall_as, view, about, k=_MEMORIES)
        if not recalled:
            if self._bulletins.stale(chat):
                await self._put_up(chat, "", upto, ())
            return True
        prompt = Prompt.of(
            self._material(chat, [one.text_with_speaker for one in recalled]),
            system=_WRITE + UNTRUSTED_TEXT_RULE,
            max_tokens=900,
        )
        try:
            answer = await self._models.ask(Role.CORTEX, prompt, caller=Caller(chat.room, chat.character))
        except ModelError as error:
            self._failed(error)
            return False
        self._failures, self._rests_until = 0, None
        words = self._guard.redact(answer.text).split()
        await self._put_up(chat, " ".join(words[:LONGEST_WORDS]), upto, tuple(one.id for one in recalled))
        return True

    async def _put_up(self, chat: DeskChat, text: str, upto: int, memories: tuple[str, ...]) -> None:
        payload = BulletinWritten(character=chat.character, person=chat.person, text=text, upto=upto, memories=memories)
        await self._store.append([NewEvent(f"cast:{chat.character}", payload, "cortex")])

    def _material(self, chat: DeskChat, memories: Sequence[str]) -> str:
        signals = Counter(self._signals.get(chat.character, ()))
        lately = ", ".join(f"{kind} × {times}" for kind, times in signals.most_common())
        told = mark_untrusted("\n".join(f"- {text}" for text in memories), "its memory")
        return f"{told}\n\nLately: {lately}" if lately else told

    def _failed(self, error: ModelError) -> None:
        self._failures += 1
        _log.warning("no bulletin", failures=self._failures, error=redact(str(error)))
        if self._failures >= MOST_FAILURES:
            self._rests_until, self._failures = self._clock.now() + REST, 0
