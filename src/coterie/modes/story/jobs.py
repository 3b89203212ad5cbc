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

from coterie.base.ids import new_id
from coterie.characters.service import Characters
from coterie.conversation.events import AssistantTurn
from coterie.conversation.turns import Turn, TurnQueries
from coterie.eventstore import Job, NewEvent, NewJob, Store
from coterie.eventstore.worker import Handler, JobResult
from coterie.llm.messages import Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.settings import Role
from coterie.llm.structured import classify
from coterie.memory import Memory
from coterie.memory.events import MemoryEdited
from coterie.memory.writer import NewMemory
from coterie.modes.story.events import (
    ClockMoved,
    DialogueSummarised,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
    SceneClosed,
    SceneOpened,
    SceneSummarised,
)
from coterie.modes.story.participants import Participants
from coterie.modes.story.pins import Pins
from coterie.modes.story.queries import Chat, ChatQueries, StoryScene
from coterie.modes.story.relationships import RelationshipQueries, summary_hash
from coterie.modes.story.turn_parser import turn_text

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
    def __init__(self, store: Store, models: Models, memory: Memory, participants: Participants) -> None:
        self._store = store
        self._models = models
        self._memory = memory
        self._participants = participants
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
        names, people = self._participants.names(chat), self._chats.people()
        new: list[NewMemory] = []
        for turn in (question, reply):
            if turn is None or not (text := turn_text(turn)):
                continue
            witnesses = self._participants.witnesses(chat, turn)
            new += [
                NewMemory(
                    text,
                    owner=bot,
                    room=chat.room,
                    scene=chat.scene,
                    speaker=self._participants.name(names, turn.speaker),
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
        heard = self._participants.witnesses(chat, *(turn for turn in (question, reply) if turn))
        present, people = self._participants.names(chat), self._chats.people()
        names = {entity: self._participants.name(present, entity) for entity in heard}
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
        names = self._participants.names(chat)
        said = [turn for turn in turns if turn is not None and turn_text(turn)]
        return "\n".join(f"{self._participants.name(names, turn.speaker)}: {turn_text(turn)}" for turn in said)

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


# Closing a scene: what it was to each who saw it, what it changed between them, and the next one. S15
#
# The summary stands beside the word-for-word memories rather than in their place (facts and summaries alone are recalled
# worse); those that were judged to matter nothing leave recall, and the summary carries the scene's weight.


_SCENE_MAX_TURNS = 200
_TRANSCRIPT_LENGTH = 6_000
"""Characters of a scene that are given to be summarised; the middle of a longer one is left out."""


class Closing(BaseModel):
    summary: str = Field(
        default="", description="What happened, from this character's point of view, in 2-4 sentences."
    )
    significance: int = Field(default=1, ge=0, le=3)
    relationship: str = Field(default="", description="How the character sees the person now, in a sentence or two.")


class SceneCloser:
    def __init__(
        self, store: Store, roster: Characters, models: Models, memory: Memory, participants: Participants
    ) -> None:
        self._roster = roster
        self._models = models
        self._memory = memory
        self._participants = participants
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)
        self._edges = RelationshipQueries(store)
        self._pins = Pins(store)

    async def run_job(self, job: Job) -> JobResult:
        chat = self._chats.chat(str(job.payload["room"]))
        reply = self._timeline.turn(chat.room, str(job.payload["turn"]))
        drafts: list[NewEvent] = []
        if chat.scene == job.payload["scene"]:
            drafts = await self.close(chat, str(job.payload["why"]), reply)
        # It may have been closed by hand, before or meanwhile.
        still = self._chats.chat(chat.room).scene == job.payload["scene"]
        return JobResult(drafts if still else ())

    async def close(self, chat: Chat, why: str, last: Turn | None, *, by_hand: bool = False) -> list[NewEvent]:
        """Everything that closing comes to, to be recorded in one transaction. `last` is the scene's last turn: what
        was said while somebody thought about it belongs to the next scene, and must not be in what is kept of this."""
        if chat.scene is None:
            return []
        scene = self._chats.scene(chat.room, chat.scene)
        turn = last.id if last is not None else None
        before = last.seq + 1 if last is not None else None
        turns = [one for one in self._timeline.latest(chat.room, _SCENE_MAX_TURNS, before) if one.seq > scene.seq]

        def draft(payload: SceneClosed | SceneSummarised | SceneOpened | RelationshipSummaryRewritten) -> NewEvent:
            return NewEvent(chat.room, payload, "story", turn=turn)

        drafts = [draft(SceneClosed(scene=scene.id, ends=chat.clock, why=why, by_hand=by_hand))]
        # Whispers stay out: a summary is told before everybody, and their own memories are kept private.
        aloud = [one for one in turns if not one.to and turn_text(one)]
        witnesses = self._witnesses(chat, aloud)
        for bot, seen in witnesses.items():
            prior = self._edges.get(chat.world, bot, chat.person).summary
            closing = await self._summarise(chat, bot, seen, prior)
            summarised = SceneSummarised(
                scene=scene.id, owner=bot, summary=closing.summary, significance=closing.significance
            )
            drafts.append(draft(summarised))
            drafts += self._remember(chat, scene, bot, closing, seen, (*chat.people, *witnesses), turn)
            if closing.relationship:
                rewritten = RelationshipSummaryRewritten(
                    world=chat.world,
                    of=bot,
                    toward=chat.person,
                    summary=closing.relationship[:600],
                    rewrites=summary_hash(prior),
                )
                drafts.append(draft(rewritten))
        following = SceneOpened(
            scene=new_id(),
            container=scene.container,
            participants=tuple(chat.participants),
            starts=chat.clock,
            versions={bot: self._roster.get(bot).version for bot in chat.characters},
        )
        return [*drafts, draft(following)]

    def _witnesses(self, chat: Chat, turns: Sequence[Turn]) -> dict[str, list[Turn]]:
        """Who saw something of it, also who has left since, with what they saw."""
        there, people = dict.fromkeys(chat.characters), self._chats.people()
        for turn in turns:
            there |= dict.fromkeys(bot for bot in turn.present if bot not in people)
        found: dict[str, list[Turn]] = {}
        for bot in there:
            saw = self._participants.turns_seen_by(chat, bot)
            if seen := [turn for turn in turns if saw(turn)]:
                found[bot] = seen
        return found

    async def _summarise(self, chat: Chat, bot: str, seen: Sequence[Turn], prior: str) -> Closing:
        present = self._participants.names(chat)
        names = {entity: self._participants.name(present, entity) for entity in {bot, *(one.speaker for one in seen)}}
        who = present[chat.person]
        prompt = Prompt.of(
            f"{transcript(names, seen)}\n\nHow {names[bot]} saw {who} before: {prior or 'nothing is noted'}",
            system=(
                f"Summarise this scene as {names[bot]} would remember it, say how significant it was (0 trivial, "
                f"1 ordinary, 2 important, 3 life-changing), and how {names[bot]} sees {who} now."
            ),
        )
        found = await classify(
            self._models, Closing, prompt, role=Role.COMPACTOR, caller=Caller(chat.room, bot), timeout_s=120
        )
        if found.ok and found.value.summary.strip():
            return found.value
        return Closing(summary=excerpt(names, seen))

    def _remember(
        self,
        chat: Chat,
        scene: StoryScene,
        bot: str,
        closing: Closing,
        seen: Sequence[Turn],
        witnesses: Sequence[str],
        turn: str | None,
    ) -> list[NewEvent]:
        """0 is kept but leaves recall, 1 stays, 2 is boosted, 3 is pinned."""
        new = NewMemory(
            closing.summary,
            owner=bot,
            room=chat.room,
            type="event",
            scene=scene.id,
            witnesses=tuple(sorted(witnesses)),
            sources=tuple(one.id for one in seen),
            happened=chat.clock,
            significance=closing.significance,
        )
        (planned,) = self._memory.writer.plan([new], by_meaning=False, actor="story", turn=turn)
        drafts = list(planned.new_events)
        if closing.significance == 3 and planned.verdict == "added":
            drafts += self._pins.pin(chat.room, bot, [planned.id], turn)
        return drafts


def transcript(names: dict[str, str], turns: Sequence[Turn]) -> str:
    text = "\n".join(f"{names.get(turn.speaker, turn.speaker)}: {turn_text(turn)}" for turn in turns if turn_text(turn))
    if len(text) <= _TRANSCRIPT_LENGTH:
        return text
    return f"{text[: _TRANSCRIPT_LENGTH // 2]}\n[…]\n{text[-_TRANSCRIPT_LENGTH // 2 :]}"


def excerpt(names: dict[str, str], turns: Sequence[Turn]) -> str:
    """Without a model: how it began and how it ended."""
    said = [f"{names.get(turn.speaker, turn.speaker)}: {turn_text(turn)[:160]}" for turn in turns if turn_text(turn)]
    return " … ".join([*said[:1], *said[-2:]] if len(said) > 3 else said)


# Older dialogue in short, for prompts that have no room for all of it. S13
#
# A job of its own: when a prompt had to leave turns out, what was said aloud up to there is told again in a few
# sentences, beginning with what was told before. Whispers never are: the summary stands in prompts whoever listens.


DIALOGUE_SUMMARY_JOB = "story_retell"
_MIN_OMITTED_TURNS = 8
"""So many turns must have been left out since the last time: a summary per turn would be a waste."""
_DIALOGUE_MAX_TURNS = 200
_DIALOGUE_SUMMARY_LENGTH = 1_500


class Retold(BaseModel):
    summary: str = Field(default="", description="What was said and done so far, in at most 120 words.")


class DialogueSummariser:
    def __init__(self, store: Store, models: Models, participants: Participants) -> None:
        self._store = store
        self._models = models
        self._participants = participants
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
        present = self._participants.names(chat)
        names = {entity: self._participants.name(present, entity) for entity in {turn.speaker for turn in turns}}
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
