"""What follows from an exchange: one job and one model call for relationships, memories, activities and the scene.

Its events carry the reply's id as `turn`, so that a regenerate supersedes them with the reply. Rules decide what the
words state unmistakably; without a usable answer of the classifier, they decide alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from coterie.base.ids import new_id
from coterie.base.untrusted import join_lines
from coterie.characters import declare_prompt
from coterie.conversation import AssistantTurn, NoSuchTurn, Turn, TurnQueries
from coterie.eventstore import Handler, Job, JobResult, NewEvent, NewJob, Store
from coterie.llm import Caller, Models, Prompt, Role, classify
from coterie.memory import Memory, NewMemory
from coterie.modes.story.analysis.exchange_rules import estimate_exchange
from coterie.modes.story.analysis.scene_rules import (
    DEFAULT_MINUTES,
    MAX_PLACE_NAME,
    SceneChange,
    SceneEnd,
    detect_scene_change,
    minutes_until,
)
from coterie.modes.story.edits import Pins
from coterie.modes.story.events import Activity, ActivityChange, ClockMoved, ExchangeAnalysed, RelationshipUpdated
from coterie.modes.story.jobs import REWORK_KEY_PREFIX, SCENE_CLOSE_JOB, PromptsOf
from coterie.modes.story.pictures import MessagePictures
from coterie.modes.story.queries import Chat, ChatQueries, Participants
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import turn_text

ANALYSIS_JOB = "story_memory"
REWORK_JOB = "story_rework"
_FORMER_JOBS = ("story_state", "story_significance", "story_scene")
"""Jobs of earlier versions that the analysis replaces; a log may contain open ones."""
_MAX_DELTA = 10
_MAX_STATEMENTS = 4
_TOLD_RELIABILITY = 0.7
_GROUNDED_SHARE = 0.5
"""The share of a statement's words that the exchange must contain."""


Failure = Literal["", "refused", "not_json", "not_the_schema", "unavailable"]


class PairUpdate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    of: str
    toward: str
    affinity_delta: int = Field(default=0, description="-10 to 10")
    trust_delta: int = Field(default=0, description="-10 to 10")
    knowledge_facts: list[str] = Field(default_factory=list)


class ActivityUpdate(BaseModel):
    """What somebody does at the end of the exchange; only what changed."""

    model_config = ConfigDict(extra="ignore")

    who: str
    posture: str = Field(default="", max_length=200, description="Such as: sitting by the fire.")
    action: str = Field(default="", max_length=200, description="What they are doing, in a few words.")
    holding: list[str] | None = Field(default=None, description="Everything in their hands; null if unchanged.")
    mood: str = Field(default="", max_length=200)


class Statement(BaseModel):
    model_config = ConfigDict(extra="ignore")

    text: str = Field(description="A short statement with names instead of pronouns.")
    told_by: str = Field(default="", description="Who told it, if it happened elsewhere or earlier.")


class TurnAnalysis(BaseModel):
    model_config = ConfigDict(extra="ignore")

    pairs: list[PairUpdate] = Field(default_factory=list)
    significance: Literal[0, 1, 2, 3] = 1
    scene_end: SceneEnd = ""
    place: str = Field(default="", description="The place they went to, if scene_end is place.")
    evidence: str = Field(default="", description="The words of the exchange that show it, copied exactly.")
    minutes: int = Field(default=0, ge=0, le=60 * 24 * 366, description="How many minutes passed.")
    activities: list[ActivityUpdate] = Field(default_factory=list)
    memories: list[Statement] = Field(default_factory=list)


_ANALYSIS = declare_prompt(
    "classifier-turn",
    "Story: after a reply",
    "Reads how feelings, memories, activities and the scene changed.",
    "Analyse this exchange of a role-play.\n"
    "- pairs: for each of the pairs, affinity_delta and trust_delta from -10 to 10 (0 when nothing changed), and "
    "knowledge_facts: what the first learned about the second, as short sentences.\n"
    "- significance for the people in it: 0 trivial, 1 ordinary, 2 important, 3 life-changing. Most exchanges are 1.\n"
    "- scene_end: `place` if they are in another place at the end, `time` if the story skipped ahead in time, `done` "
    "if somebody ended the scene; empty if the scene goes on. Plans, wishes, memories and reports are no change. If "
    "it is not empty, copy the words that show it to evidence; for `place`, name the place.\n"
    "- minutes: how long the exchange took, or how much time was skipped.\n"
    "- activities: who changed posture, action, what they hold, or mood.\n"
    "- memories: at most 4 statements that somebody there would remember later, such as “Ana's brother died last "
    "winter”; none for small talk. If somebody told it about another time or place, give their name as told_by.",
)


def combine_scene_change(texts: Sequence[str], analysis: TurnAnalysis | None) -> SceneChange:
    """What the rules detect, else what the classifier says if it can show the words."""
    change = detect_scene_change(texts)
    minutes = analysis.minutes if analysis is not None else None
    if change.end:
        # A duration that the words do not state is the classifier's.
        return change if change.minutes or change.part_of_day else SceneChange(change.end, minutes, "", change.place)
    if analysis is None or not analysis.scene_end or not _contains(texts, analysis.evidence):
        return SceneChange(minutes=minutes)
    place = join_lines(analysis.place).strip()[:MAX_PLACE_NAME] if analysis.scene_end == "place" else ""
    return SceneChange(analysis.scene_end, minutes, "", place)


def rate_significance(texts: Sequence[str], analysis: TurnAnalysis | None) -> int:
    """The classifier's rating, but at least what the words alone suggest if that is more than ordinary."""
    rated = max((estimate_exchange(text).significance for text in texts if text), default=1)
    if analysis is None:
        return rated
    return max(analysis.significance, rated) if rated > 1 else analysis.significance


def is_grounded(statement: str, exchange: str) -> bool:
    """Whether the exchange contains enough of a statement's words, in whatever form."""
    stems = {word[:4] for word in re.findall(r"\w{3,}", statement.lower())}
    known = {word[:4] for word in re.findall(r"\w{3,}", exchange.lower())}
    return bool(stems) and len(stems & known) >= _GROUNDED_SHARE * len(stems)


def _contains(texts: Sequence[str], evidence: str) -> bool:
    wanted = _plain(evidence)
    return bool(wanted) and wanted in _plain("\n".join(texts))


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def serialize_by_chat(job: Job) -> str | None:
    """Jobs of one chat run one after the other: each depends on the scene, pins and summaries of the one before."""
    return str(job.payload["room"]) if job.kind.startswith("story_") else None


class PostTurnJobs:
    def __init__(
        self,
        store: Store,
        models: Models,
        memory: Memory,
        participants: Participants,
        pictures: MessagePictures,
        settings: StorySettings,
        prompts: PromptsOf,
    ) -> None:
        self._store = store
        self._models = models
        self._memory = memory
        self._participants = participants
        self._pictures = pictures
        self._settings = settings
        self._prompts = prompts
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)
        self._pins = Pins(store)

    def jobs_after(self, room: str, ended: AssistantTurn) -> Sequence[NewJob]:
        """The job of a finished reply; none for an empty one."""
        if not ended.text.strip():
            return ()
        payload = {"room": room, "reply": ended.reply}
        return [NewJob(ANALYSIS_JOB, key=f"{ANALYSIS_JOB}:{room}:{ended.reply}", payload=payload)]

    def jobs_after_message(self, room: str, turn: str) -> Sequence[NewJob]:
        """The job of a message that nobody replies to."""
        return [NewJob(ANALYSIS_JOB, key=f"{ANALYSIS_JOB}:{room}:{turn}", payload={"room": room, "reply": turn})]

    def rework_job(self, room: str, anchor: str, changed: str) -> NewJob:
        """The job that derives again what an exchange led to, after one of its turns was changed.

        `anchor` is the message, or a reply that answers none.
        """
        payload = {"room": room, "anchor": anchor, "changed": changed}
        return NewJob(REWORK_JOB, key=f"{REWORK_JOB}:{room}:{changed}:{new_id()}", payload=payload)

    def handlers(self) -> dict[str, Handler]:
        former = dict.fromkeys(_FORMER_JOBS, _end_former_job)
        return {ANALYSIS_JOB: self._analyse, REWORK_JOB: self._rework, **former}

    async def _analyse(self, job: Job) -> JobResult | None:
        """Record what an exchange changed; nothing if it does not count any more.

        Jobs are withdrawn with the event that caused them. A job that a fork copied is caused by the fork, and stays
        when the fork regenerates or rewinds the turn.
        """
        exchange = self._exchange(job)
        if exchange is not None and await self._describe_pictures(exchange):
            exchange = self._exchange(job)
        if exchange is None:
            return None
        chat, reply = exchange.chat, exchange.reply
        analysis, failure = await self._ask(exchange)
        unchanged = self._exchange(job)  # it may have been rewound, or one of its turns changed, meanwhile
        if unchanged is None or unchanged.texts != exchange.texts:
            return None
        change = combine_scene_change(exchange.words, analysis)
        significance = rate_significance(exchange.words, analysis)
        for owner in exchange.witnesses:
            if owner not in exchange.people:
                # Load the index now, so that the next reply does not wait for it.
                await asyncio.to_thread(self._memory.preload, owner)
        new_events = [
            *self._remember(exchange, analysis, significance),
            *self._relationship_events(exchange, analysis),
            *self._activity_events(exchange, analysis),
            *self._outcome(exchange, failure),
        ]
        minutes = minutes_until(chat.clock, change.part_of_day) if change.part_of_day else change.minutes
        minutes = DEFAULT_MINUTES if minutes is None else minutes
        if minutes or change.end:
            new_events.append(exchange.new_event(ClockMoved(minutes=minutes, why=change.end)))
        jobs: list[NewJob] = []
        if change.end and chat.scene is not None and self._timeline.count(chat.room) > 2:
            payload = {"room": chat.room, "scene": chat.scene, "why": change.end, "turn": reply.id}
            payload |= {"place": change.place} if change.place else {}
            jobs.append(NewJob(SCENE_CLOSE_JOB, f"{SCENE_CLOSE_JOB}:{chat.room}:{reply.id}", payload))
        return JobResult(new_events, jobs)

    async def _describe_pictures(self, exchange: _Exchange) -> bool:
        """Put the pictures of an exchange into words, which memories consist of. False if there are none."""
        pictured = [turn for turn in exchange.turns if any(not one.description for one in turn.pictures)]
        for turn in pictured:
            await self._pictures.describe(exchange.chat.room, turn)
        return bool(pictured)

    async def _rework(self, job: Job) -> JobResult | None:
        """Memories and relationships of an exchange as it is now; the scene and the clock stay as they are."""
        exchanges = self._changed_exchanges(job)
        new_events: list[NewEvent] = []
        for exchange in exchanges:
            analysis, failure = await self._ask(exchange)
            significance = rate_significance(exchange.words, analysis)
            new_events += self._outcome(exchange, failure)
            new_events += self._remember(exchange, analysis, significance)
            new_events += self._relationship_events(exchange, analysis)
        if [one.texts for one in self._changed_exchanges(job)] != [one.texts for one in exchanges]:
            return None  # changed again: another job follows
        key = f"{REWORK_KEY_PREFIX}{job.payload['changed']}:"
        return JobResult([new_event._replace(key=f"{key}{new_id()}") for new_event in new_events])

    def _changed_exchanges(self, job: Job) -> list[_Exchange]:
        """The exchanges that a changed turn belongs to, without turns that are hidden or deleted."""
        chat = self._chats.chat(str(job.payload["room"]))
        anchor, changed = str(job.payload["anchor"]), str(job.payload["changed"])
        replies = [turn for turn in self._timeline.replies_to(chat.room, anchor) if not turn.hidden]
        if changed != anchor:
            replies = [turn for turn in replies if turn.id == changed]
        message = self._find(chat.room, anchor)
        pairs: list[tuple[Turn | None, Turn | None]] = [(message, reply) for reply in replies] or [(message, None)]
        turns = [[turn for turn in pair if turn is not None and not turn.hidden] for pair in pairs]
        return [self._build(chat, some) for some in turns if any(map(turn_text, some))]

    def _outcome(self, exchange: _Exchange, failure: Failure) -> list[NewEvent]:
        """The event that says whether there is an analysis, if that is not what is known already."""
        known = self._chats.failed_analyses(exchange.chat.room).get(exchange.reply.id, "")
        if failure == known:
            return []
        return [exchange.new_event(ExchangeAnalysed(reply=exchange.reply.id, failure=failure))]

    async def _ask(self, exchange: _Exchange) -> tuple[TurnAnalysis | None, Failure]:
        """The classifier's answer, or why it has none that can be used. A model too small for analysis is not asked."""
        if not self._models.catalogue.supports_analysis():
            return None, ""
        target = self._models.catalogue.chain(Role.CLASSIFIER)[0]
        count = self._models.tokens.counter(target)
        instructions = self._prompts(exchange.character).text(_ANALYSIS)
        text = exchange.prompt_text(self._settings.classifier_budget_hard - count(instructions), count)
        prompt = Prompt.of(text, system=instructions)
        caller = Caller(room=exchange.chat.room, character=exchange.character)
        result = await classify(self._models, TurnAnalysis, prompt, caller=caller)
        return (result.value, "") if result.failure is None else (None, result.failure.failure)

    def _remember(self, exchange: _Exchange, analysis: TurnAnalysis | None, significance: int) -> list[NewEvent]:
        """Statements for those who witnessed all of it, and the exact words of each turn as evidence.

        Exact words are recalled better than facts or summaries alone.
        """
        new_memories = self._statements(exchange, analysis, significance)
        statements = len(new_memories)
        for turn in exchange.turns:
            text = turn_text(turn)
            witnesses = self._participants.witnesses(exchange.chat, turn)
            new_memories += [
                exchange.memory(
                    text, owner, [turn], witnesses, significance, speaker=exchange.turn_name(turn), private=turn.to
                )
                for owner in witnesses
                if text and owner not in exchange.people
            ]
        planned = self._memory.writer.plan(new_memories, by_meaning=False, actor="story", turn=exchange.reply.id)
        new_events = [new_event for plan in planned for new_event in plan.new_events]
        if significance == 3:
            new_events += self._pin(exchange, new_memories, [plan.id for plan in planned], statements)
        return new_events

    def _pin(
        self, exchange: _Exchange, memories: Sequence[NewMemory], ids: Sequence[str], statements: int
    ) -> list[NewEvent]:
        """One pin per owner: the first statement, else the reply."""
        chosen: dict[str, str] = {}
        for index, memory in enumerate(memories):
            if not ids[index]:
                continue
            if index < statements:
                chosen.setdefault(memory.owner, ids[index])
            elif not statements:
                chosen[memory.owner] = ids[index]
        return [
            event
            for owner, memory_id in sorted(chosen.items())
            for event in self._pins.pin_automatically(exchange.chat.room, owner, [memory_id], exchange.reply.id)
        ]

    def _statements(self, exchange: _Exchange, analysis: TurnAnalysis | None, significance: int) -> list[NewMemory]:
        found: list[NewMemory] = []
        words = f"{exchange.transcript()} {' '.join(exchange.names.values())}"
        for statement in (analysis.memories if analysis is not None else [])[:_MAX_STATEMENTS]:
            text = join_lines(statement.text).strip()[:300]
            if not text or not is_grounded(text, words):
                continue
            told_by = exchange.ids.get(statement.told_by.strip().lower())
            for owner in exchange.witnesses:
                if owner in exchange.people or owner == told_by:
                    continue
                found.append(
                    exchange.memory(
                        text,
                        owner,
                        exchange.turns,
                        exchange.witnesses,
                        significance,
                        kind="fact",
                        told_by=told_by,
                        private=exchange.reply.to,
                    )
                )
        return found

    def _relationship_events(self, exchange: _Exchange, analysis: TurnAnalysis | None) -> list[NewEvent]:
        """Updates of every character that witnessed the exchange, including silent ones."""
        if analysis is None and not self._models.catalogue.supports_analysis():
            return self._estimated_updates(exchange)
        new_events: list[NewEvent] = []
        changed: set[tuple[str, str]] = set()
        for update in analysis.pairs if analysis is not None else ():
            pair = (exchange.ids.get(update.of.lower(), ""), exchange.ids.get(update.toward.lower(), ""))
            if pair not in exchange.pairs or pair in changed:
                continue
            changed.add(pair)
            # A whisper becomes a private memory, not knowledge that shows in every prompt.
            knowledge = () if exchange.reply.to else _facts(update.knowledge_facts)
            new_events.append(
                exchange.relationship(
                    pair, _clamp(update.affinity_delta), _clamp(update.trust_delta), knowledge=knowledge
                )
            )
        # The time of the last interaction with a person is recorded even if nothing changed.
        unchanged = [pair for pair in exchange.pairs if pair not in changed and pair[1] in exchange.people]
        return [*new_events, *map(exchange.relationship, unchanged)]

    def _estimated_updates(self, exchange: _Exchange) -> list[NewEvent]:
        """The relationships of those present with the person who wrote, by rules; what was learned is not known."""
        question = exchange.turns[0]
        estimate = estimate_exchange(exchange.words[0] if question.by_person else "")
        deltas = (estimate.affinity_delta, estimate.trust_delta)
        return [
            exchange.relationship(pair, *(deltas if pair[1] == question.speaker else (0, 0)))
            for pair in exchange.pairs
            if pair[1] in exchange.people
        ]

    def _activity_events(self, exchange: _Exchange, analysis: TurnAnalysis | None) -> list[NewEvent]:
        activities = self._chats.activities(exchange.chat.room)
        new_events: list[NewEvent] = []
        for update in analysis.activities if analysis is not None else ():
            entity = exchange.ids.get(update.who.strip().lower())
            if entity is None or entity not in exchange.chat.participants:
                continue
            before = activities.get(entity, Activity())
            activity = _updated_activity(before, update)
            if activity != before:
                activities[entity] = activity
                new_events.append(exchange.new_event(ActivityChange(entity=entity, activity=activity)))
        return new_events

    def _exchange(self, job: Job) -> _Exchange | None:
        """The exchange of a reply, or of a message without one; None if nothing of it counts any more."""
        chat = self._chats.chat(str(job.payload["room"]))
        reply = self._find(chat.room, str(job.payload["reply"]))
        if reply is None or reply.hidden:
            return None
        question = self._find(chat.room, reply.answers) if reply.answers else None
        return self._build(chat, [turn for turn in (question, reply) if turn is not None and not turn.hidden])

    def _build(self, chat: Chat, turns: Sequence[Turn]) -> _Exchange:
        return _Exchange(chat, turns, self._participants, self._chats)

    def _find(self, room: str, turn: str) -> Turn | None:
        try:
            return self._timeline.turn(room, turn)
        except NoSuchTurn:
            return None


class _Exchange:
    """A message and its reply, or one of them, with the names and ids of those who witnessed all of it."""

    def __init__(self, chat: Chat, turns: Sequence[Turn], participants: Participants, chats: ChatQueries) -> None:
        self.chat = chat
        self.turns = list(turns)
        self.reply = self.turns[-1]
        """The last turn: the reply, unless there is none."""
        self.texts = [turn_text(turn) for turn in self.turns]
        self.words = [turn_text(replace(turn, pictures=())) for turn in self.turns]
        """The same without pictures: what a picture shows does not happen."""
        self.people = chats.people()
        self.witnesses = participants.witnesses(chat, *self.turns)
        self._participants = participants
        self._present = participants.names(chat)
        self.names = {entity: self.name(entity) for entity in self.witnesses}
        self.ids = {name.lower(): entity for entity, name in self.names.items()}
        self.ids |= {entity: entity for entity in self.names}
        self.pairs = [
            (of, toward) for of in self.witnesses for toward in self.witnesses if of != toward and of not in self.people
        ]
        self._places = [place.name for place in chats.containers(chat.room).values()]
        scene = chats.scene(chat.room, chat.scene) if chat.scene is not None else None
        self._place = chats.container_name(chat.room, scene.container) if scene is not None else ""
        self._activities = chats.activities(chat.room)

    @property
    def character(self) -> str:
        """Whose instructions to the classifier apply."""
        return self.chat.host if self.reply.by_person else self.reply.speaker

    def name(self, entity: str) -> str:
        return self._participants.name(self._present, entity)

    def turn_name(self, turn: Turn) -> str:
        return self._participants.turn_name(self.chat, self._present, turn)

    def transcript(self) -> str:
        return "\n".join(
            f"{self.turn_name(turn)}: {text}" for turn, text in zip(self.turns, self.texts, strict=True) if text
        )

    def prompt_text(self, budget: int, count: Callable[[str], int]) -> str:
        """The exchange with its place, activities and pairs; the middle of a very long text is left out."""
        doing = [
            f"{self.names[entity]}: {activity.posture or activity.action.verb}"
            for entity, activity in self._activities.items()
            if entity in self.names and (activity.posture or activity.action.verb)
        ]
        about = [f"Place: {join_lines(self._place)}" if self._place else ""]
        about += [f"Known places: {', '.join(map(join_lines, self._places[:20]))}" if len(self._places) > 1 else ""]
        about += [f"Doing: {'; '.join(map(join_lines, doing))}" if doing else ""]
        pairs = "; ".join(f"{self.names[of]} toward {self.names[toward]}" for of, toward in self.pairs)
        before, after = "\n".join(filter(None, about)), f"Pairs: {pairs}"
        text = self.transcript()
        limit = len(text)
        while limit > 400 and count(f"{before}{_shorten(text, limit)}{after}") > budget:
            limit = limit * 3 // 4
        return "\n\n".join(filter(None, (before, _shorten(text, limit), after)))

    def new_event(self, payload: ActivityChange | ClockMoved | ExchangeAnalysed | RelationshipUpdated) -> NewEvent:
        return NewEvent(self.chat.room, payload, "story", turn=self.reply.id)

    def memory(
        self,
        text: str,
        owner: str,
        sources: Sequence[Turn],
        witnesses: Sequence[str],
        significance: int,
        *,
        kind: Literal["observation", "fact"] = "observation",
        speaker: str | None = None,
        told_by: str | None = None,
        private: Sequence[str] = (),
    ) -> NewMemory:
        return NewMemory(
            text,
            owner=owner,
            room=self.chat.room,
            type=kind,
            scene=self.chat.scene,
            speaker=speaker,
            told_by=told_by,
            witnesses=tuple(sorted(witnesses)),
            sources=tuple(turn.id for turn in sources),
            happened=self.chat.clock,
            significance=significance,
            reliability=_TOLD_RELIABILITY if told_by else 1.0,
            private=bool(private),
        )

    def relationship(
        self,
        pair: tuple[str, str],
        affinity_delta: int = 0,
        trust_delta: int = 0,
        knowledge: tuple[str, ...] = (),
    ) -> NewEvent:
        return self.new_event(
            RelationshipUpdated(
                world=self.chat.world,
                of=pair[0],
                toward=pair[1],
                affinity_delta=affinity_delta,
                trust_delta=trust_delta,
                knowledge=knowledge,
                chat=self.chat.room,
                when=self.chat.clock,
            )
        )


async def _end_former_job(job: Job) -> JobResult | None:
    """The analysis of the same turn includes it."""
    return None


def _updated_activity(activity: Activity, update: ActivityUpdate) -> Activity:
    changes: dict[str, object] = {}
    if posture := join_lines(update.posture).strip():
        changes["posture"] = posture
    if verb := join_lines(update.action).strip():
        changes["action"] = activity.action.model_copy(update={"verb": verb})
    if mood := join_lines(update.mood).strip():
        changes["status"] = mood
    if update.holding is not None:
        changes["holding"] = tuple(name for one in update.holding[:10] if (name := join_lines(one).strip()[:80]))
    return activity.model_copy(update=changes)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length // 2]}\n[…]\n{text[-length // 2 :]}"


def _facts(facts: Sequence[str]) -> tuple[str, ...]:
    return tuple(fact.strip()[:300] for fact in facts[:5] if fact.strip())


def _clamp(delta: int) -> int:
    return max(-_MAX_DELTA, min(_MAX_DELTA, delta))
