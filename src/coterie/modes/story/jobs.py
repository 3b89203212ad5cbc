"""Jobs after a reply: memories, relationships, significance, the clock, closing a scene, summarising dialogue.

The result of each job is recorded once. Its events carry the reply's id as `turn`, so that a regenerate supersedes them
with the reply. If the classifier fails, a job records what follows without it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.base.ids import new_id
from coterie.characters import Characters
from coterie.conversation import AssistantTurn, NoSuchTurn, Turn, TurnQueries
from coterie.eventstore import Handler, Job, JobResult, NewEvent, NewJob, Store
from coterie.llm import Caller, Models, Prompt, Role, classify
from coterie.memory import Memory, MemoryEdited, NewMemory
from coterie.modes.story.edits import Pins
from coterie.modes.story.events import (
    ClockMoved,
    DialogueSummarised,
    RelationshipSummaryRewritten,
    RelationshipUpdated,
    SceneClosed,
    SceneOpened,
    SceneSummarised,
)
from coterie.modes.story.projections import summary_hash
from coterie.modes.story.queries import Chat, ChatQueries, Participants, RelationshipQueries, StoryScene
from coterie.modes.story.turn_parser import turn_text

MEMORY_JOB = "story_memory"
RELATIONSHIP_JOB = "story_state"
SIGNIFICANCE_JOB = "story_significance"
SCENE_CHECK_JOB = "story_scene"
SCENE_CLOSE_JOB = "story_close"
DIALOGUE_SUMMARY_JOB = "story_retell"
_MAX_DELTA = 10
_SCENE_MAX_TURNS = 200
_TRANSCRIPT_LENGTH = 6_000
"""Characters of a transcript that is summarised; the middle of a longer one is left out."""
_MIN_OMITTED_TURNS = 8
"""Turns that prompts left out since the last summary before another one is worth a model call."""
_DIALOGUE_MAX_TURNS = 200
_DIALOGUE_SUMMARY_LENGTH = 1_500

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


class Significance(BaseModel):
    significance: Literal[0, 1, 2, 3] = 1


def serialize_by_chat(job: Job) -> str | None:
    """Jobs of one chat run one after the other: each depends on the scene, pins and summaries of the one before."""
    return str(job.payload["room"]) if job.kind.startswith("story_") else None


def _skip_inactive_turns(handler: Handler) -> Handler:
    """End a job without a result if its turn does not count any more.

    Jobs are withdrawn with the event that caused them. A job that a fork copied is caused by the fork, and stays when
    the fork regenerates or rewinds the turn.
    """

    async def handle(job: Job) -> JobResult | None:
        try:
            return await handler(job)
        except NoSuchTurn:
            return None

    return handle


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
        """The jobs of a finished reply; none for an empty one."""
        if not ended.text.strip():
            return ()
        payload = {"room": room, "reply": ended.reply}
        return [
            NewJob(kind, key=f"{kind}:{room}:{ended.reply}", payload=payload)
            for kind in (MEMORY_JOB, RELATIONSHIP_JOB, SCENE_CHECK_JOB)
        ]

    def handlers(self) -> dict[str, Handler]:
        handlers: dict[str, Handler] = {
            MEMORY_JOB: self._remember,
            RELATIONSHIP_JOB: self._update_relationships,
            SIGNIFICANCE_JOB: self._rate_significance,
            SCENE_CHECK_JOB: self._check_scene,
        }
        return {kind: _skip_inactive_turns(handler) for kind, handler in handlers.items()}

    async def _remember(self, job: Job) -> JobResult:
        """A memory per turn and witness, with the exact words: those are recalled better than facts or summaries."""
        chat, reply, question = self._exchange(job)
        names, people = self._participants.names(chat), self._chats.people()
        new_memories: list[NewMemory] = []
        for turn in (question, reply):
            if turn is None or not (text := turn_text(turn)):
                continue
            witnesses = self._participants.witnesses(chat, turn)
            new_memories += [
                NewMemory(
                    text,
                    owner=character,
                    room=chat.room,
                    scene=chat.scene,
                    speaker=self._participants.name(names, turn.speaker),
                    witnesses=tuple(sorted(witnesses)),
                    sources=(turn.id,),
                    happened=chat.clock,
                    private=bool(turn.to),
                )
                for character in witnesses
                if character not in people
            ]
        planned = self._memory.writer.plan(new_memories, by_meaning=False, actor="story", turn=reply.id)
        new_events = [new_event for plan in planned for new_event in plan.new_events]
        added: dict[str, list[str]] = {}
        for memory, plan in zip(new_memories, planned, strict=True):
            if plan.verdict == "added":
                added.setdefault(memory.owner, []).append(plan.id)
        rate = NewJob(
            SIGNIFICANCE_JOB, f"{SIGNIFICANCE_JOB}:{chat.room}:{reply.id}", {**job.payload, "memories": added}
        )
        return JobResult(new_events, [rate] if added else [])

    async def _update_relationships(self, job: Job) -> JobResult:
        """Update the relationships of every character that witnessed the exchange, including silent ones."""
        chat, reply, question = self._exchange(job)
        witnesses = self._participants.witnesses(chat, *(turn for turn in (question, reply) if turn))
        present, people = self._participants.names(chat), self._chats.people()
        names = {entity: self._participants.name(present, entity) for entity in witnesses}
        ids = {name.lower(): entity for entity, name in names.items()} | {entity: entity for entity in names}
        pairs = [(of, toward) for of in witnesses for toward in names if of != toward and of not in people]
        if not pairs:
            return JobResult()
        listed = "; ".join(f"{names[of]} toward {names[toward]}" for of, toward in pairs)
        prompt = Prompt.of(
            f"{self._transcript(chat, question, reply)}\n\nPairs: {listed}",
            system=(
                "After this exchange, how did feelings change? For each pair give affinity_delta and trust_delta from "
                "-10 to 10 (0 when nothing changed) and knowledge_facts: what the first learned about the second, as "
                "short sentences."
            ),
        )
        caller = Caller(room=chat.room, character=reply.speaker)
        result = await classify(self._models, StateUpdate, prompt, caller=caller)
        new_events: list[NewEvent] = []
        changed: set[tuple[str, str]] = set()
        for update in result.value.pairs:
            pair = (ids.get(update.of.lower(), ""), ids.get(update.toward.lower(), ""))
            if pair not in pairs or pair in changed:
                continue
            changed.add(pair)
            new_events.append(
                self._relationship_update(
                    chat,
                    reply,
                    pair,
                    affinity_delta=_clamp(update.affinity_delta),
                    trust_delta=_clamp(update.trust_delta),
                    # A whisper becomes a private memory, not knowledge that shows in every prompt.
                    knowledge=() if reply.to else _facts(update.knowledge_facts),
                )
            )
        # The time of the last interaction with a person is recorded even if nothing changed.
        new_events += [
            self._relationship_update(chat, reply, pair) for pair in pairs if pair not in changed and pair[1] in people
        ]
        return JobResult(new_events)

    async def _rate_significance(self, job: Job) -> JobResult:
        """Rate the exchange from 0 to 3, and pin its last memory if it is life-changing."""
        chat, reply, question = self._exchange(job)
        for owner in job.payload["memories"]:
            # Load the index now, so that the next reply does not wait for it.
            await asyncio.to_thread(self._memory.preload, owner)
        prompt = Prompt.of(
            self._transcript(chat, question, reply),
            system="How significant is this exchange for the people in it? 0 trivial, 1 ordinary, 2 important, 3 "
            "life-changing. Most exchanges are 1.",
        )
        caller = Caller(room=chat.room, character=reply.speaker)
        rated = (await classify(self._models, Significance, prompt, caller=caller)).value.significance
        new_events: list[NewEvent] = []
        for owner, ids in sorted(job.payload["memories"].items()):
            if rated != Significance().significance:
                edits = [MemoryEdited(id=memory_id, significance=rated) for memory_id in ids]
                new_events += [NewEvent(chat.room, edit, "story", turn=reply.id) for edit in edits]
            if rated == 3:  # one pin per exchange
                new_events += self._pins.pin_automatically(chat.room, owner, ids[-1:], reply.id)
        return JobResult(new_events)

    async def _check_scene(self, job: Job) -> JobResult:
        """Whether the scene ended, and how much time passed. Unambiguous phrases decide without a model."""
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
            result = await classify(self._models, SceneCheck, prompt, caller=Caller(chat.room, reply.speaker))
            check = result.value if result.ok else SceneCheck(minutes=2)
        else:
            minutes = int((skip or timedelta(minutes=2)).total_seconds() // 60)
            check = SceneCheck(closed=True, why="time" if skip else "done", minutes=minutes)
        new_events: list[NewEvent] = []
        if check.minutes or check.closed:
            new_events.append(
                NewEvent(chat.room, ClockMoved(minutes=check.minutes, why=check.why), "story", turn=reply.id)
            )
        jobs: list[NewJob] = []
        if check.closed and chat.scene is not None and self._timeline.count(chat.room) > 2:
            payload = {"room": chat.room, "scene": chat.scene, "why": check.why, "turn": reply.id}
            jobs.append(NewJob(SCENE_CLOSE_JOB, f"{SCENE_CLOSE_JOB}:{chat.room}:{reply.id}", payload))
        return JobResult(new_events, jobs)

    def _exchange(self, job: Job) -> tuple[Chat, Turn, Turn | None]:
        chat = self._chats.chat(str(job.payload["room"]))
        reply = self._timeline.turn(chat.room, str(job.payload["reply"]))
        question = self._timeline.turn(chat.room, reply.answers) if reply.answers else None
        return chat, reply, question

    def _transcript(self, chat: Chat, *turns: Turn | None) -> str:
        names = self._participants.names(chat)
        return "\n".join(
            f"{self._participants.name(names, turn.speaker)}: {text}"
            for turn in turns
            if turn is not None and (text := turn_text(turn))
        )

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


def _clamp(delta: int) -> int:
    return max(-_MAX_DELTA, min(_MAX_DELTA, delta))


class SceneSummary(BaseModel):
    summary: str = Field(
        default="", description="What happened, from this character's point of view, in 2-4 sentences."
    )
    significance: int = Field(default=1, ge=0, le=3)
    relationship: str = Field(default="", description="How the character sees the person now, in a sentence or two.")


class SceneCloser:
    """Closes a scene: a summary per witness, rewritten relationship summaries, and the next scene."""

    def __init__(
        self, store: Store, characters: Characters, models: Models, memory: Memory, participants: Participants
    ) -> None:
        self._characters = characters
        self._models = models
        self._memory = memory
        self._participants = participants
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)
        self._relationships = RelationshipQueries(store)
        self._pins = Pins(store)

    async def run_job(self, job: Job) -> JobResult:
        chat = self._chats.chat(str(job.payload["room"]))
        reply = self._timeline.turn(chat.room, str(job.payload["turn"]))
        new_events: list[NewEvent] = []
        if chat.scene == job.payload["scene"]:
            new_events = await self.close(chat, str(job.payload["why"]), reply)
        # It may have been closed by hand before or during the summary.
        still = self._chats.chat(chat.room).scene == job.payload["scene"]
        return JobResult(new_events if still else ())

    async def close(self, chat: Chat, why: str, last: Turn | None, *, by_hand: bool = False) -> list[NewEvent]:
        """The events of closing, to be appended in one transaction.

        `last` is the scene's last turn; turns that were added during the summary belong to the next scene.
        """
        if chat.scene is None:
            return []
        scene = self._chats.scene(chat.room, chat.scene)
        turn = last.id if last is not None else None
        before = last.seq + 1 if last is not None else None
        turns = [one for one in self._timeline.latest(chat.room, _SCENE_MAX_TURNS, before) if one.seq > scene.seq]

        def new_event(payload: SceneClosed | SceneSummarised | SceneOpened | RelationshipSummaryRewritten) -> NewEvent:
            return NewEvent(chat.room, payload, "story", turn=turn)

        new_events = [new_event(SceneClosed(scene=scene.id, ends=chat.clock, why=why, by_hand=by_hand))]
        # Whispers are left out: everybody present may see what follows from a summary.
        aloud = [one for one in turns if not one.to and turn_text(one)]
        witnesses = self._witnesses(chat, aloud)
        for character, seen_turns in witnesses.items():
            prior = self._relationships.get(chat.world, character, chat.person).summary
            result = await self._summarise(chat, character, seen_turns, prior)
            summarised = SceneSummarised(
                scene=scene.id, owner=character, summary=result.summary, significance=result.significance
            )
            new_events.append(new_event(summarised))
            new_events += self._remember(chat, scene, character, result, seen_turns, (*chat.people, *witnesses), turn)
            if result.relationship:
                rewritten = RelationshipSummaryRewritten(
                    world=chat.world,
                    of=character,
                    toward=chat.person,
                    summary=result.relationship[:600],
                    rewrites=summary_hash(prior),
                )
                new_events.append(new_event(rewritten))
        following = SceneOpened(
            scene=new_id(),
            container=scene.container,
            participants=tuple(chat.participants),
            starts=chat.clock,
            versions={character: self._characters.get(character).version for character in chat.characters},
        )
        return [*new_events, new_event(following)]

    def _witnesses(self, chat: Chat, turns: Sequence[Turn]) -> dict[str, list[Turn]]:
        """The characters that witnessed any of these turns, including those who left since, with what they saw."""
        candidates, people = dict.fromkeys(chat.characters), self._chats.people()
        for turn in turns:
            candidates |= dict.fromkeys(entity for entity in turn.present if entity not in people)
        turns_by_witness: dict[str, list[Turn]] = {}
        for character in candidates:
            if seen_turns := list(filter(self._participants.turns_seen_by(chat, character), turns)):
                turns_by_witness[character] = seen_turns
        return turns_by_witness

    async def _summarise(self, chat: Chat, character: str, seen: Sequence[Turn], prior: str) -> SceneSummary:
        present = self._participants.names(chat)
        names = {
            entity: self._participants.name(present, entity) for entity in {character, *(turn.speaker for turn in seen)}
        }
        name, person = names[character], present[chat.person]
        prompt = Prompt.of(
            f"{transcript(names, seen)}\n\nHow {name} saw {person} before: {prior or 'nothing is noted'}",
            system=(
                f"Summarise this scene as {name} would remember it, say how significant it was (0 trivial, "
                f"1 ordinary, 2 important, 3 life-changing), and how {name} sees {person} now."
            ),
        )
        result = await classify(
            self._models, SceneSummary, prompt, role=Role.COMPACTOR, caller=Caller(chat.room, character), timeout_s=120
        )
        if result.ok and result.value.summary.strip():
            return result.value
        return SceneSummary(summary=excerpt(names, seen))

    def _remember(
        self,
        chat: Chat,
        scene: StoryScene,
        character: str,
        result: SceneSummary,
        seen: Sequence[Turn],
        witnesses: Sequence[str],
        turn: str | None,
    ) -> list[NewEvent]:
        """A memory of the summary, which is pinned if the scene was life-changing."""
        new_memory = NewMemory(
            result.summary,
            owner=character,
            room=chat.room,
            type="event",
            scene=scene.id,
            witnesses=tuple(sorted(witnesses)),
            sources=tuple(one.id for one in seen),
            happened=chat.clock,
            significance=result.significance,
        )
        (planned,) = self._memory.writer.plan([new_memory], by_meaning=False, actor="story", turn=turn)
        new_events = list(planned.new_events)
        if result.significance == 3 and planned.verdict == "added":
            new_events += self._pins.pin_automatically(chat.room, character, [planned.id], turn)
        return new_events


def transcript(names: dict[str, str], turns: Sequence[Turn]) -> str:
    text = "\n".join(f"{names.get(turn.speaker, turn.speaker)}: {turn_text(turn)}" for turn in turns if turn_text(turn))
    if len(text) <= _TRANSCRIPT_LENGTH:
        return text
    return f"{text[: _TRANSCRIPT_LENGTH // 2]}\n[…]\n{text[-_TRANSCRIPT_LENGTH // 2 :]}"


def excerpt(names: dict[str, str], turns: Sequence[Turn]) -> str:
    """A summary without a model: the first and the last turns."""
    lines = [f"{names.get(turn.speaker, turn.speaker)}: {turn_text(turn)[:160]}" for turn in turns if turn_text(turn)]
    return " … ".join([*lines[:1], *lines[-2:]] if len(lines) > 3 else lines)


class DialogueSummary(BaseModel):
    summary: str = Field(default="", description="What was said and done so far, in at most 120 words.")


class DialogueSummariser:
    """Summarises dialogue that prompts leave out. Whispers are left out, because any listener's prompt may hold it."""

    def __init__(self, store: Store, models: Models, participants: Participants) -> None:
        self._store = store
        self._models = models
        self._participants = participants
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)

    def jobs_after(self, room: str, ended: AssistantTurn, first_shown: int | None) -> Sequence[NewJob]:
        """`first_shown` is the seq of the first turn in the prompt, or None if no turns were left out."""
        if first_shown is None or not ended.text.strip():
            return ()
        previous = self._chats.dialogue_summary(room)
        left_out = self._store.query(
            "SELECT count(*) FROM (SELECT 1 FROM turn WHERE room = ? AND seq >= ? AND seq < ? LIMIT ?)",
            (room, previous[0] if previous is not None else 0, first_shown, _MIN_OMITTED_TURNS),
        )
        if left_out[0][0] < _MIN_OMITTED_TURNS:
            return ()
        payload = {"room": room, "reply": ended.reply, "upto": first_shown}
        return [NewJob(DIALOGUE_SUMMARY_JOB, key=f"{DIALOGUE_SUMMARY_JOB}:{room}:{ended.reply}", payload=payload)]

    async def run_job(self, job: Job) -> JobResult:
        chat = self._chats.chat(str(job.payload["room"]))
        reply, upto = str(job.payload["reply"]), int(job.payload["upto"])
        turns = self._omitted_turns(chat.room, upto)
        if not turns:
            return JobResult()
        summary = await self._summarise(chat, turns)
        return JobResult([NewEvent(chat.room, DialogueSummarised(upto=upto, summary=summary), "story", turn=reply)])

    def _omitted_turns(self, room: str, upto: int) -> list[Turn]:
        previous = self._chats.dialogue_summary(room)
        begins = previous[0] if previous is not None else 0
        latest = self._timeline.latest(room, _DIALOGUE_MAX_TURNS, upto)
        return [turn for turn in latest if turn.seq >= begins and not turn.to and turn_text(turn)]

    async def _summarise(self, chat: Chat, turns: Sequence[Turn]) -> str:
        present = self._participants.names(chat)
        names = {entity: self._participants.name(present, entity) for entity in {turn.speaker for turn in turns}}
        previous = self._chats.dialogue_summary(chat.room)
        before = previous[1] if previous is not None else ""
        prompt = Prompt.of(
            f"So far: {before or 'nothing'}\n\nThen:\n{transcript(names, turns)}",
            system="Tell in at most 120 words what happened so far: what was said so far first, then what came then. "
            "Keep names, promises, places and what people learned.",
        )
        result = await classify(
            self._models,
            DialogueSummary,
            prompt,
            role=Role.COMPACTOR,
            caller=Caller(chat.room, chat.host),
            timeout_s=120,
        )
        summary = result.value.summary.strip() if result.ok else ""
        return (summary or f"{before} {excerpt(names, turns)}".strip())[-_DIALOGUE_SUMMARY_LENGTH:]
