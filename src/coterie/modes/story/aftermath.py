"""What a reply leaves behind, off the reply path: memories, feelings, the clock, the end of a scene. S14

Each is a durable job whose result is recorded once. Their drafts carry the reply's id as `turn`, so that a
regenerate takes them back with the reply. Where the classifier has nothing to say, what can be known without it
still happens.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.engine.events import AssistantTurn
from coterie.engine.turns import Turn, TurnQueries
from coterie.kernel import Job, NewEvent, NewJob, Store
from coterie.kernel.worker import Handler, JobResult
from coterie.llm.messages import Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.memory import Memory
from coterie.memory.events import MemoryEdited
from coterie.memory.writing import NewMemory
from coterie.modes.story.chats import Chat, ChatQueries
from coterie.modes.story.events import ClockMoved, RelationshipUpdated
from coterie.modes.story.pins import Pins
from coterie.modes.story.prompting import PromptBuilder
from coterie.modes.story.segments import turn_text

MEMORY_JOB, RELATIONSHIP_JOB, SIGNIFICANCE_JOB, SCENE_CHECK_JOB = (
    "story_memory",
    "story_state",
    "story_significance",
    "story_scene",
)
SCENE_CLOSE_JOB = "story_close"
_MAX_DELTA = 10

_SCENE_END = re.compile(
    r"\b(we(?:'|’)?re done here|we are done here|the end|fade to black|end (?:of )?(?:the )?scene)\b", re.I
)
_TIME_SKIPS = (
    (re.compile(r"\bthe next (?:morning|day)\b|\btomorrow comes\b", re.I), timedelta(hours=12)),
    (re.compile(r"\b(?:a few|several|some) hours (?:later|pass)", re.I), timedelta(hours=3)),
    (re.compile(r"\b(?:an|one) hour (?:later|passes)\b", re.I), timedelta(hours=1)),
    (re.compile(r"\b(?:a week|weeks) (?:later|pass(?:es)?)\b", re.I), timedelta(days=7)),
    (re.compile(r"\b(?:days) (?:later|pass)\b", re.I), timedelta(days=2)),
)


class PairUpdate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    of: str
    toward: str
    affinity_delta: int = Field(default=0, description="-10 to 10")
    trust_delta: int = Field(default=0, description="-10 to 10")
    knowledge_facts: list[str] = Field(default_factory=list)


class StateUpdate(BaseModel):
    pairs: list[PairUpdate] = Field(default_factory=list)


class SceneCheck(BaseModel):
    closed: bool = False
    why: Literal["", "place", "done", "time"] = ""
    minutes: int = Field(default=0, ge=0, le=60 * 24 * 7, description="How many minutes this exchange took.")


class Weight(BaseModel):
    significance: Literal[0, 1, 2, 3] = 1


class PostTurnJobs:
    def __init__(self, store: Store, models: Models, memory: Memory, prompter: PromptBuilder) -> None:
        self._store = store
        self._models = models
        self._memory = memory
        self._prompter = prompter
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)
        self._pins = Pins(store)

    def jobs_after(self, room: str, ended: AssistantTurn) -> Sequence[NewJob]:
        """What a reply causes. One that never said a word causes nothing."""
        if not ended.text.strip():
            return ()
        payload = {"room": room, "reply": ended.reply}
        return [
            NewJob(kind, key=f"{kind}:{room}:{ended.reply}", payload=payload)
            for kind in (MEMORY_JOB, RELATIONSHIP_JOB, SCENE_CHECK_JOB)
        ]

    def handlers(self) -> dict[str, Handler]:
        return {
            MEMORY_JOB: self._remember,
            RELATIONSHIP_JOB: self._update_relationships,
            SIGNIFICANCE_JOB: self._rate_significance,
            SCENE_CHECK_JOB: self._check_scene,
        }

    async def _remember(self, job: Job) -> JobResult:
        """A memory per witness of what was said: word for word, because that is what is recalled best."""
        chat, reply, question = self._exchange(job)
        names, people = self._prompter.names(chat), self._chats.people()
        new: list[NewMemory] = []
        for turn in (question, reply):
            if turn is None or not (text := turn_text(turn)):
                continue
            witnesses = self._prompter.witnesses.of_turns(chat, turn)
            new += [
                NewMemory(
                    text,
                    owner=bot,
                    room=chat.room,
                    scene=chat.scene,
                    speaker=self._prompter.name(names, turn.speaker),
                    witnesses=tuple(sorted(witnesses)),
                    sources=(turn.id,),
                    happened=chat.clock,
                    private=bool(turn.to),
                )
                for bot in witnesses
                if bot not in people
            ]
        planned = self._memory.writer.plan(new, by_meaning=False, actor="story", turn=reply.id)
        drafts = [draft for plan in planned for draft in plan.new_events]
        added: dict[str, list[str]] = {}
        for memory, plan in zip(new, planned, strict=True):
            if plan.verdict == "added":
                added.setdefault(memory.owner, []).append(plan.id)
        weigh = NewJob(
            SIGNIFICANCE_JOB, f"{SIGNIFICANCE_JOB}:{chat.room}:{reply.id}", {**job.payload, "memories": added}
        )
        return JobResult(drafts, [weigh] if added else [])

    async def _update_relationships(self, job: Job) -> JobResult:
        """How everybody present feels about everybody else now, silent witnesses too."""
        chat, reply, question = self._exchange(job)
        heard = self._prompter.witnesses.of_turns(chat, *(turn for turn in (question, reply) if turn))
        present, people = self._prompter.names(chat), self._chats.people()
        names = {entity: self._prompter.name(present, entity) for entity in heard}
        ids = {name.lower(): entity for entity, name in names.items()} | {entity: entity for entity in names}
        pairs = [(of, toward) for of in heard for toward in names if of != toward and of not in people]
        if not pairs:
            return JobResult()
        asked = "; ".join(f"{names[of]} toward {names[toward]}" for of, toward in pairs)
        prompt = Prompt.of(
            f"{self._transcript(chat, question, reply)}\n\nPairs: {asked}",
            system=(
                "After this exchange, how did feelings change? For each pair give affinity_delta and trust_delta from "
                "-10 to 10 (0 when nothing changed) and knowledge_facts: what the first learned about the second, as "
                "short sentences."
            ),
        )
        caller = Caller(room=chat.room, character=reply.speaker)
        found = await classify(self._models, StateUpdate, prompt, caller=caller)
        drafts: list[NewEvent] = []
        changed: set[tuple[str, str]] = set()
        for update in found.value.pairs:
            pair = (ids.get(update.of.lower(), ""), ids.get(update.toward.lower(), ""))
            if pair not in pairs or pair in changed:
                continue
            changed.add(pair)
            drafts.append(
                self._relationship_update(
                    chat,
                    reply,
                    pair,
                    affinity_delta=_clamped(update.affinity_delta),
                    trust_delta=_clamped(update.trust_delta),
                    # What was whispered is kept as a private memory, not as common knowledge.
                    knowledge=() if reply.to else _facts(update.knowledge_facts),
                )
            )
        # Having met is something, even when nothing changed: the last interaction is noted.
        drafts += [
            self._relationship_update(chat, reply, pair) for pair in pairs if pair not in changed and pair[1] in people
        ]
        return JobResult(drafts)

    async def _rate_significance(self, job: Job) -> JobResult:
        """How much it matters, 0 to 3. What matters most is pinned; the weakest automatic pin makes room."""
        chat, reply, question = self._exchange(job)
        for owner in job.payload["memories"]:
            await asyncio.to_thread(
                self._memory.preload, owner
            )  # nobody waits now; before the next reply somebody does
        prompt = Prompt.of(
            self._transcript(chat, question, reply),
            system="How significant is this exchange for the people in it? 0 trivial, 1 ordinary, 2 important, 3 "
            "life-changing. Most exchanges are 1.",
        )
        caller = Caller(room=chat.room, character=reply.speaker)
        weight = (await classify(self._models, Weight, prompt, caller=caller)).value.significance
        drafts: list[NewEvent] = []
        ordinary = Weight().significance
        for owner, ids in sorted(job.payload["memories"].items()):
            if weight != ordinary:
                edits = [MemoryEdited(id=memory_id, significance=weight) for memory_id in ids]
                drafts += [NewEvent(chat.room, edit, "story", turn=reply.id) for edit in edits]
            if weight == 3:
                # One exchange, one pin: what was said last is what it came to.
                drafts += self._pins.pin(chat.room, owner, ids[-1:], reply.id)
        return JobResult(drafts)

    async def _check_scene(self, job: Job) -> JobResult:
        """Did the scene end, and how much time went by? Clear words decide by themselves."""
        chat, reply, question = self._exchange(job)
        text = f"{turn_text(question) if question else ''}\n{reply.text}"
        skip = next((length for pattern, length in _TIME_SKIPS if pattern.search(text)), None)
        done = bool(_SCENE_END.search(text))
        if skip is None and not done:
            prompt = Prompt.of(
                self._transcript(chat, question, reply),
                system="Did the scene end in this exchange: did they go to another place (place), say they are done "
                "(done) or skip ahead in time (time)? And about how many minutes did the exchange take?",
            )
            found = await classify(self._models, SceneCheck, prompt, caller=Caller(chat.room, reply.speaker))
            check = found.value if found.ok else SceneCheck(minutes=2)
        else:
            minutes = int((skip or timedelta(minutes=2)).total_seconds() // 60)
            check = SceneCheck(closed=True, why="time" if skip else "done", minutes=minutes)
        drafts: list[NewEvent] = []
        if check.minutes or check.closed:
            drafts.append(NewEvent(chat.room, ClockMoved(minutes=check.minutes, why=check.why), "story", turn=reply.id))
        jobs: list[NewJob] = []
        if check.closed and chat.scene is not None and self._timeline.count(chat.room) > 2:
            payload = {"room": chat.room, "scene": chat.scene, "why": check.why, "turn": reply.id}
            jobs.append(NewJob(SCENE_CLOSE_JOB, f"{SCENE_CLOSE_JOB}:{chat.room}:{reply.id}", payload))
        return JobResult(drafts, jobs)

    def _exchange(self, job: Job) -> tuple[Chat, Turn, Turn | None]:
        chat = self._chats.chat(str(job.payload["room"]))
        reply = self._timeline.turn(chat.room, str(job.payload["reply"]))
        question = self._timeline.turn(chat.room, reply.answers) if reply.answers else None
        return chat, reply, question

    def _transcript(self, chat: Chat, *turns: Turn | None) -> str:
        names = self._prompter.names(chat)
        said = [turn for turn in turns if turn is not None and turn_text(turn)]
        return "\n".join(f"{self._prompter.name(names, turn.speaker)}: {turn_text(turn)}" for turn in said)

    def _relationship_update(
        self,
        chat: Chat,
        reply: Turn,
        pair: tuple[str, str],
        *,
        affinity_delta: int = 0,
        trust_delta: int = 0,
        knowledge: tuple[str, ...] = (),
    ) -> NewEvent:
        payload = RelationshipUpdated(
            world=chat.world,
            of=pair[0],
            toward=pair[1],
            affinity_delta=affinity_delta,
            trust_delta=trust_delta,
            knowledge=knowledge,
            chat=chat.room,
            when=chat.clock,
        )
        return NewEvent(chat.room, payload, "story", turn=reply.id)


def _facts(facts: Sequence[str]) -> tuple[str, ...]:
    return tuple(fact.strip()[:300] for fact in facts[:5] if fact.strip())


def _clamped(delta: int) -> int:
    return max(-_MAX_DELTA, min(_MAX_DELTA, delta))
