"""Older dialogue in short, for prompts that have no room for all of it. S13

A job of its own: when a prompt had to leave turns out, what was said aloud up to there is told again in a few
sentences, beginning with what was told before. Whispers never are: the summary stands in prompts whoever listens.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from coterie.engine.events import AssistantTurn
from coterie.engine.turns import Timeline, Turn
from coterie.kernel import Draft, Job, NewJob, Store
from coterie.kernel.worker import Outcome
from coterie.llm.messages import Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.modes.story.chats import Chat, ChatBook
from coterie.modes.story.events import DialogueSummarised
from coterie.modes.story.prompting import Prompter
from coterie.modes.story.scenes import in_short, script
from coterie.modes.story.segments import spoken

RETELL = "story_retell"
_WORTH = 8
"""So many turns must have been left out since the last time: a summary per turn would be a waste."""
_MOST_TURNS = 200
_LONGEST = 1_500


class Retold(BaseModel):
    summary: str = Field(default="", description="What was said and done so far, in at most 120 words.")


class Retelling:
    def __init__(self, store: Store, models: Models, prompter: Prompter) -> None:
        self._store = store
        self._models = models
        self._prompter = prompter
        self._timeline = Timeline(store)
        self._chats = ChatBook(store)

    def jobs_after(self, room: str, ended: AssistantTurn, first_told: int | None) -> Sequence[NewJob]:
        """`first_told` is where the prompt's dialogue began, if something before it was left out."""
        if first_told is None or not ended.text.strip():
            return ()
        told = self._chats.dialogue_summary(room)
        left_out = self._store.query(
            "SELECT count(*) FROM (SELECT 1 FROM turn WHERE room = ? AND seq >= ? AND seq < ? LIMIT ?)",
            (room, told[0] if told is not None else 0, first_told, _WORTH),
        )
        if left_out[0][0] < _WORTH:
            return ()
        payload = {"room": room, "reply": ended.reply, "upto": first_told}
        return [NewJob(RETELL, key=f"{RETELL}:{room}:{ended.reply}", payload=payload)]

    async def job(self, job: Job) -> Outcome:
        chat = self._chats.chat(str(job.payload["room"]))
        reply, upto = str(job.payload["reply"]), int(job.payload["upto"])
        turns = self._untold(chat.room, upto)
        if not turns:
            return Outcome()
        summary = await self._retell(chat, turns)
        draft = Draft(chat.room, DialogueSummarised(upto=upto, summary=summary), "story", turn=reply)
        return Outcome([draft])

    def _untold(self, room: str, upto: int) -> list[Turn]:
        told = self._chats.dialogue_summary(room)
        begins = told[0] if told is not None else 0
        latest = self._timeline.latest(room, _MOST_TURNS, upto)
        return [turn for turn in latest if turn.seq >= begins and not turn.to and spoken(turn)]

    async def _retell(self, chat: Chat, turns: Sequence[Turn]) -> str:
        present = self._prompter.names(chat)
        names = {entity: self._prompter.name(present, entity) for entity in {turn.speaker for turn in turns}}
        told = self._chats.dialogue_summary(chat.room)
        before = told[1] if told is not None else ""
        prompt = Prompt.of(
            f"So far: {before or 'nothing'}\n\nThen:\n{script(names, turns)}",
            system="Tell in at most 120 words what happened so far: what was said so far first, then what came then. "
            "Keep names, promises, places and what people learned.",
        )
        found = await classify(
            self._models, Retold, prompt, role=Role.COMPACTOR, caller=Caller(chat.room, chat.host), timeout_s=120
        )
        summary = found.value.summary.strip() if found.ok else ""
        return (summary or f"{before} {in_short(names, turns)}".strip())[-_LONGEST:]
