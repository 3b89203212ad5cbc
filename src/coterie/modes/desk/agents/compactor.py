"""The compactor: keeps a conversation within what its model can hold, without ever making it wait. D5

At 80 % the oldest 30 % are summarised in the background, at 85 % the oldest half; at 95 % the oldest half is dropped at
once with a marker and no model is asked. What a person said last stays, with all that came after it. The swap is one
event: before it the history is whole, after it the summary stands in its place, and a summary that fails changes
nothing. The turns themselves never leave the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from coterie.eventstore import Job, NewEvent, NewJob, Store
from coterie.eventstore.worker import JobResult
from coterie.llm.messages import Prompt, PromptMessage
from coterie.llm.router import Caller, Models
from coterie.llm.settings import Role
from coterie.llm.structured import classify
from coterie.memory.records import MemoryType
from coterie.memory.writer import NewMemory
from coterie.modes.desk.agents.processes import Processes
from coterie.modes.desk.errors import SummaryFailed
from coterie.modes.desk.events import HistoryCompacted
from coterie.modes.desk.jobs import COMPACT_JOB
from coterie.modes.desk.queries import DeskChat, DeskQueries, HistoryEntry
from coterie.modes.desk.text_safety import UNTRUSTED_TEXT_RULE, LeakGuard, mark_untrusted

SUMMARISE_AT, HURRY_AT, DROP_AT = 0.80, 0.85, 0.95
UNKNOWN_WINDOW = 8_192
"""Tokens, where nobody knows how many the model can hold."""


class SummaryMemory(BaseModel):
    text: str
    type: MemoryType = "fact"


class ConversationSummary(BaseModel):
    """What a stretch of conversation comes to."""

    summary: str = Field(default="", description="What was said, decided, promised and left open, in plain sentences.")
    memories: list[SummaryMemory] = Field(default=[], description="What is worth remembering for good.")


class Compactor:
    def __init__(self, store: Store, book: DeskQueries, models: Models, processes: Processes) -> None:
        self._store = store
        self._book = book
        self._models = models
        self._processes = processes
        self._guard = LeakGuard()

    async def check_size(self, chat: DeskChat, messages: Sequence[PromptMessage]) -> tuple[bool, list[NewJob]]:
        """Before a prompt is sent: whether its oldest half had to go at once, and what is to be done aside."""
        await self._models.tokens.prepare(self._models.catalogue.chain(Role.CHANNEL)[0])
        fullness = self.fullness(messages)
        lines = self._book.history(chat.room)
        if fullness < SUMMARISE_AT or not _oldest(lines, 1.0):
            return False, []
        if fullness >= DROP_AT:
            await self._drop(chat, _oldest(lines, 0.5))
            return True, []
        share = 0.5 if fullness >= HURRY_AT else 0.3
        key = f"{COMPACT_JOB}:{chat.room}:{lines[0].seq}:{share}"
        payload = {"room": chat.room, "first": lines[0].seq, "upto": _oldest(lines, share)[-1].seq}
        return False, [NewJob(COMPACT_JOB, key, payload, max_attempts=3)]

    def fullness(self, messages: Sequence[PromptMessage]) -> float:
        target = self._models.catalogue.chain(Role.CHANNEL)[0]
        used = self._models.tokens.count_prompt(target, Prompt(messages=tuple(messages)))
        return used / (self._models.context_window(Role.CHANNEL) or UNKNOWN_WINDOW)

    async def compact(self, job: Job) -> JobResult | None:
        chat = self._book.chat(str(job.payload["room"]))
        lines = [line for line in self._book.history(chat.room) if line.seq <= int(job.payload["upto"])]
        if not lines or lines[0].seq != job.payload["first"]:
            return None  # somebody was quicker: what it should stand for is summarised already
        told = "\n".join(f"{line.role}: {line.text}" for line in lines)
        prompt = Prompt.of(
            mark_untrusted(told, "the conversation"), system=f"Summarise this conversation. {UNTRUSTED_TEXT_RULE}"
        )
        digest = await classify(
            self._models, ConversationSummary, prompt, role=Role.COMPACTOR, caller=Caller(chat.room, chat.character)
        )
        if not digest.ok or not digest.value.summary.strip():
            raise SummaryFailed("The conversation could not be summarised.", "It is tried again; nothing was changed.")
        if self._book.history(chat.room)[0].seq != job.payload["first"]:
            return None
        drafts: list[NewEvent] = []
        for kept in digest.value.memories[:20]:
            wanted = NewMemory(
                self._guard.redact(kept.text), chat.character, chat.room, type=kept.type, sources=(f"{lines[0].seq}",)
            )
            drafts += self._processes.memory_events(chat, wanted)
        payload = HistoryCompacted(upto=lines[-1].seq, summary=self._guard.redact(digest.value.summary.strip()))
        return JobResult([*drafts, NewEvent(chat.room, payload)])

    async def _drop(self, chat: DeskChat, lines: Sequence[HistoryEntry]) -> None:
        marker = f"[{len(lines)} older messages were left out here; `channel_recall` in a branch finds them.]"
        payload = HistoryCompacted(upto=lines[-1].seq, summary=marker, dropped=True)
        await self._store.append([NewEvent(chat.room, payload, key=f"desk_drop:{chat.room}:{lines[-1].seq}")])


def _oldest(lines: Sequence[HistoryEntry], share: float) -> Sequence[HistoryEntry]:
    """Never what a person said last: it is what is being answered."""
    said = [at for at, line in enumerate(lines) if line.role == "user"]
    return lines[: min(max(1, int(len(lines) * share)), said[-1] if said else len(lines) - 1)]
