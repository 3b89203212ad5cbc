"""Older dialogue in short, for prompts that have no room for all of it. S13

A job of its own: when a prompt had to leave turns out, what was said aloud up to there is told again in a few
sentences, beginning with what was told before. Whispers never are: the summary stands in prompts whoever listens.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from coterie.engine.events import AssistantTurn
from coterie.engine.turns import Turn, TurnQueries
from coterie.kernel import Job, NewEvent, NewJob, Store
from coterie.kernel.worker import JobResult
from coterie.llm.messages import Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.modes.story.chats import Chat, ChatQueries
from coterie.modes.story.events import DialogueSummarised
from coterie.modes.story.prompting import PromptBuilder
from coterie.modes.story.scenes import excerpt, transcript
from coterie.modes.story.segments import turn_text

DIALOGUE_SUMMARY_JOB = "story_retell"
_MIN_OMITTED_TURNS = 8
"""So many turns must have been left out since the last time: a summary per turn would be a waste."""
_DIALOGUE_MAX_TURNS = 200
_DIALOGUE_SUMMARY_LENGTH = 1_500


class Retold(BaseModel):
    summary: str = Field(default="", description="What was said and done so far, in at most 120 words.")


class DialogueSummariser:
    def __init__(self, store: Store, models: Models, prompter: PromptBuilder) -> None:
        self._store = store
        self._models = models
        self._prompter = prompter
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)

    def jobs_after(self, room: str, ended: AssistantTurn, first_told: int | None) -> Sequence[NewJob]:
        """`first_told` is where the prompt's dialogue began, if something before it was left out."""
        if first_told is None or not ended.text.strip():
            return ()
        told = self._chats.dialogue_summary(room)
        left_out = self._store.query(
            "SELECT count(*) FROM (SELECT 1 FROM turn WHERE room = ? AND seq >= ? AND seq < ? LIMIT ?)",
            (room, told[0] if told is not None else 0, first_told, _MIN_OMITTED_TURNS),
        )
        if left_out[0][0] < _MIN_OMITTED_TURNS:
            return ()
        payload = {"room": room, "reply": ended.reply, "upto": first_told}
        return [NewJob(DIALOGUE_SUMMARY_JOB, key=f"{DIALOGUE_SUMMARY_JOB}:{room}:{ended.reply}", payload=payload)]

    async def run_job(self, job: Job) -> JobResult:
        chat = self._chats.chat(str(job.payload["room"]))
        reply, upto = str(job.payload["reply"]), int(job.payload["upto"])
        turns = self._omitted_turns(chat.room, upto)
        if not turns:
            return JobResult()
        summary = await self._summarise(chat, turns)
        draft = NewEvent(chat.room, DialogueSummarised(upto=upto, summary=summary), "story", turn=reply)
        return JobResult([draft])

    def _omitted_turns(self, room: str, upto: int) -> list[Turn]:
        told = self._chats.dialogue_summary(room)
        begins = told[0] if told is not None else 0
        latest = self._timeline.latest(room, _DIALOGUE_MAX_TURNS, upto)
        return [turn for turn in latest if turn.seq >= begins and not turn.to and turn_text(turn)]

    async def _summarise(self, chat: Chat, turns: Sequence[Turn]) -> str:
        present = self._prompter.names(chat)
        names = {entity: self._prompter.name(present, entity) for entity in {turn.speaker for turn in turns}}
        told = self._chats.dialogue_summary(chat.room)
        before = told[1] if told is not None else ""
        prompt = Prompt.of(
            f"So far: {before or 'nothing'}\n\nThen:\n{transcript(names, turns)}",
            system="Tell in at most 120 words what happened so far: what was said so far first, then what came then. "
            "Keep names, promises, places and what people learned.",
        )
        found = await classify(
            self._models, Retold, prompt, role=Role.COMPACTOR, caller=Caller(chat.room, chat.host), timeout_s=120
        )
        summary = found.value.summary.strip() if found.ok else ""
        return (summary or f"{before} {excerpt(names, turns)}".strip())[-_DIALOGUE_SUMMARY_LENGTH:]
