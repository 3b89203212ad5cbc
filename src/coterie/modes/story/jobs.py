"""Closing a scene, and summarising dialogue that prompts leave out.

The events of a job carry the reply's id as `turn`, so that a regenerate supersedes them with the reply.
If the model is too small for analysis, excerpts stand in for summaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pydantic import BaseModel, Field

from coterie.base.ids import new_id
from coterie.characters import Characters, PromptTexts, declare_prompt
from coterie.conversation import AssistantTurn, NoSuchRoom, NoSuchTurn, Turn, TurnQueries
from coterie.eventstore import Job, JobResult, NewEvent, NewJob, Payload, Store
from coterie.llm import Caller, Models, Prompt, Role, classify
from coterie.memory import Memory, NewMemory
from coterie.modes.story.edits import Pins, plan_move
from coterie.modes.story.events import (
    DialogueSummarised,
    RelationshipSummaryRewritten,
    SceneClosed,
    SceneOpened,
    SceneSummarised,
)
from coterie.modes.story.projections import summary_hash
from coterie.modes.story.queries import Chat, ChatQueries, Participants, RelationshipQueries, StoryScene
from coterie.modes.story.turn_parser import turn_text

SCENE_CLOSE_JOB = "story_close"
SCENE_REWORK_JOB = "story_rework_scene"
DIALOGUE_SUMMARY_JOB = "story_retell"
REWORK_KEY_PREFIX = "rework:"
"""Begins the keys of events that were derived again after a turn was changed; the id of that turn follows."""
_SCENE_MAX_TURNS = 200
_TRANSCRIPT_LENGTH = 6_000
"""Characters of a transcript that is summarised; the middle of a longer one is left out."""
_MIN_OMITTED_TURNS = 16
"""Turns that prompts left out since the last summary before another one is worth a model call."""
_DIALOGUE_MAX_TURNS = 200
_DIALOGUE_SUMMARY_LENGTH = 1_500

PromptsOf = Callable[[str], PromptTexts]
"""The instructions for a character."""
_SCENE_SUMMARY = declare_prompt(
    "compactor-scene",
    "Story: summary of a scene",
    "How a character remembers a finished scene.",
    "Summarise this scene as {name} would remember it, say how significant it was (0 trivial, 1 ordinary, 2 important, "
    "3 life-changing), and how {name} sees {person} now.",
)
_STORY_SUMMARY = declare_prompt(
    "compactor-story",
    "Story: summary so far",
    "Shortens the older part of a long story.",
    "Tell in at most 120 words what happened so far: what was said so far first, then what came then. Keep names, "
    "promises, places and what people learned.",
)


class SceneSummary(BaseModel):
    summary: str = Field(
        default="", description="What happened, from this character's point of view, in 2-4 sentences."
    )
    significance: int = Field(default=1, ge=0, le=3)
    relationship: str = Field(default="", description="How the character sees the person now, in a sentence or two.")
    others: dict[str, str] = Field(
        default_factory=dict, description="By name: how the character sees each other character who was there now."
    )


class SceneCloser:
    """Closes a scene: a summary per witness, rewritten relationship summaries, and the next scene."""

    def __init__(
        self,
        store: Store,
        characters: Characters,
        models: Models,
        memory: Memory,
        participants: Participants,
        prompts: PromptsOf,
    ) -> None:
        self._store = store
        self._prompts = prompts
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
        try:
            reply = self._timeline.turn(chat.room, str(job.payload["turn"]))
        except NoSuchTurn:
            return JobResult()  # deleted since; the scene goes on
        new_events: list[NewEvent] = []
        if chat.scene == job.payload["scene"]:
            place = str(job.payload.get("place", ""))
            new_events = await self.close(chat, str(job.payload["why"]), reply, place=place)
        # It may have been closed by hand before or during the summary.
        still = self._chats.chat(chat.room).scene == job.payload["scene"]
        return JobResult(new_events if still else ())

    async def close(
        self, chat: Chat, why: str, last: Turn | None, *, place: str = "", by_hand: bool = False
    ) -> list[NewEvent]:
        """The events of closing, to be appended in one transaction.

        `last` is the scene's last turn; turns that were added during the summary belong to the next scene. That is in
        `place`, where everybody present goes; without it, the place stays the same.
        """
        if chat.scene is None:
            return []
        scene = self._chats.scene(chat.room, chat.scene)
        turn = last.id if last is not None else None
        before = last.seq + 1 if last is not None else None
        turns = [one for one in self._timeline.latest(chat.room, _SCENE_MAX_TURNS, before) if one.seq > scene.seq]

        def new_event(payload: Payload) -> NewEvent:
            return NewEvent(chat.room, payload, "story", turn=turn)

        new_events = [new_event(SceneClosed(scene=scene.id, ends=chat.clock, why=why, by_hand=by_hand))]
        new_events += await self._summary_events(chat, scene, turns, turn)
        container = scene.container
        if place:
            container, moves = plan_move(self._chats, chat, place)
            new_events += map(new_event, moves)
        following = SceneOpened(
            scene=new_id(),
            container=container,
            participants=tuple(chat.participants),
            starts=chat.clock,
            versions={character: self._characters.get(character).version for character in chat.characters},
        )
        return [*new_events, new_event(following)]

    async def _summary_events(
        self, chat: Chat, scene: StoryScene, turns: Sequence[Turn], turn: str | None
    ) -> list[NewEvent]:
        """The summaries of a scene for everybody who witnessed any of these turns; they belong to `turn`."""
        # Whispers are left out: everybody present may see what follows from a summary.
        aloud = [one for one in turns if not one.to and not one.hidden and turn_text(one)]
        witnesses = self._witnesses(chat, aloud)
        new_events: list[NewEvent] = []
        for character, seen_turns in witnesses.items():
            prior = self._relationships.get(chat.world, character, chat.person).summary
            result = await self._summarise(chat, character, seen_turns, prior)
            summarised = SceneSummarised(
                scene=scene.id, owner=character, summary=result.summary, significance=result.significance
            )
            new_events.append(NewEvent(chat.room, summarised, "story", turn=turn))
            new_events += self._remember(chat, scene, character, result, seen_turns, (*chat.people, *witnesses), turn)
            rewritten = self._rewritten_relationships(chat, character, seen_turns, prior, result)
            new_events += [NewEvent(chat.room, payload, "story", turn=turn) for payload in rewritten]
        return new_events

    def closed_scene_of(self, room: str, turn: Turn) -> str | None:
        """The scene that a turn belongs to, if it has been closed and summarised."""
        scene = self._chats.scene_at(room, turn.seq)
        return scene.id if scene is not None and scene.ends is not None else None

    def rework_job(self, room: str, scene: str, changed: str) -> NewJob:
        """The job that summarises a closed scene again, after one of its turns was changed."""
        payload = {"room": room, "scene": scene, "changed": changed}
        return NewJob(SCENE_REWORK_JOB, key=f"{SCENE_REWORK_JOB}:{room}:{changed}:{new_id()}", payload=payload)

    async def run_rework(self, job: Job) -> JobResult:
        chat = self._chats.chat(str(job.payload["room"]))
        closing = self._closing(chat.room, str(job.payload["scene"]))
        if closing is None:
            return JobResult()  # the scene is open again
        scene, turn, turns = closing
        new_events = await self._summary_events(chat, scene, turns, turn)
        if self._closing(chat.room, scene.id) != closing:
            return JobResult()  # changed again: another job follows
        key = f"{REWORK_KEY_PREFIX}{job.payload['changed']}:"
        return JobResult([new_event._replace(key=f"{key}{new_id()}") for new_event in new_events])

    def _closing(self, room: str, scene_id: str) -> tuple[StoryScene, str | None, list[Turn]] | None:
        """A closed scene, the turn it was closed after, and its turns; None if it is open or was taken back."""
        try:
            scene = self._chats.scene(room, scene_id)
        except NoSuchRoom:
            return None
        active = self._store.reader.active(room).after(scene.seq)
        for event in self._store.reader.events_at(room, active):
            if isinstance(event.payload, SceneClosed) and event.payload.scene == scene_id:
                turns = self._timeline.between(room, scene.seq, event.seq)
                belong = [one for one in turns if event.turn is None or one.id <= event.turn]
                return scene, event.turn, belong
        return None

    def _rewritten_relationships(
        self, chat: Chat, character: str, seen: Sequence[Turn], prior: str, result: SceneSummary
    ) -> list[Payload]:
        """The new summaries of how a character sees the person, and the other characters it was with."""
        present = self._participants.names(chat)
        rewritten: list[Payload] = []
        if result.relationship:
            rewritten.append(self._rewritten(chat, character, chat.person, prior, result.relationship))
        others = {turn.speaker for turn in seen if not turn.by_person} - {character}
        for other in sorted(others):
            name = self._participants.name(present, other)
            if summary := result.others.get(name, "").strip():
                before = self._relationships.get(chat.world, character, other).summary
                rewritten.append(self._rewritten(chat, character, other, before, summary))
        return rewritten

    def _rewritten(self, chat: Chat, of: str, toward: str, prior: str, summary: str) -> RelationshipSummaryRewritten:
        return RelationshipSummaryRewritten(
            world=chat.world, of=of, toward=toward, summary=summary[:600], rewrites=summary_hash(prior)
        )

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
        names |= {turn.id: self._participants.turn_name(chat, present, turn) for turn in seen}
        name, person = names[character], present[chat.person]
        if not self._models.catalogue.supports_analysis(Role.COMPACTOR):
            return SceneSummary(summary=excerpt(names, seen))
        others = [names[turn.speaker] for turn in seen if not turn.by_person and turn.speaker != character]
        listed = ", ".join(dict.fromkeys(others))
        also = f" Under `others`, say how {name} sees {listed}." if listed else ""
        prompt = Prompt.of(
            f"{transcript(names, seen)}\n\nHow {name} saw {person} before: {prior or 'nothing is noted'}",
            system=self._prompts(character).text(_SCENE_SUMMARY, name=name, person=person) + also,
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
    """The turns with the names of their speakers, which are given by turn, or else by speaker."""
    text = "\n".join(
        f"{names.get(turn.id) or names.get(turn.speaker, turn.speaker)}: {turn_text(turn)}"
        for turn in turns
        if turn_text(turn)
    )
    if len(text) <= _TRANSCRIPT_LENGTH:
        return text
    return f"{text[: _TRANSCRIPT_LENGTH // 2]}\n[…]\n{text[-_TRANSCRIPT_LENGTH // 2 :]}"


def excerpt(names: dict[str, str], turns: Sequence[Turn]) -> str:
    """A summary without a model: the first and the last turns."""
    lines = [
        f"{names.get(turn.id) or names.get(turn.speaker, turn.speaker)}: {turn_text(turn)[:160]}"
        for turn in turns
        if turn_text(turn)
    ]
    return " … ".join([*lines[:1], *lines[-2:]] if len(lines) > 3 else lines)


class DialogueSummary(BaseModel):
    summary: str = Field(default="", description="What was said and done so far, in at most 120 words.")


class DialogueSummariser:
    """Summarises dialogue that prompts leave out. Whispers are left out, because any listener's prompt may hold it."""

    def __init__(self, store: Store, models: Models, participants: Participants, prompts: PromptsOf) -> None:
        self._prompts = prompts
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
        if left_out[0][0] < _MIN_OMITTED_TURNS or self._is_summarising(room):
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

    def _is_summarising(self, room: str) -> bool:
        return bool(self._store.reader.jobs.pending(DIALOGUE_SUMMARY_JOB, {"room": room}))

    def _omitted_turns(self, room: str, upto: int) -> list[Turn]:
        previous = self._chats.dialogue_summary(room)
        begins = previous[0] if previous is not None else 0
        latest = self._timeline.latest(room, _DIALOGUE_MAX_TURNS, upto)
        return [one for one in latest if one.seq >= begins and not one.to and not one.hidden and turn_text(one)]

    async def _summarise(self, chat: Chat, turns: Sequence[Turn]) -> str:
        present = self._participants.names(chat)
        names = {turn.id: self._participants.turn_name(chat, present, turn) for turn in turns}
        previous = self._chats.dialogue_summary(chat.room)
        before = previous[1] if previous is not None else ""
        if not self._models.catalogue.supports_analysis(Role.COMPACTOR):
            return f"{before} {excerpt(names, turns)}".strip()[-_DIALOGUE_SUMMARY_LENGTH:]
        prompt = Prompt.of(
            f"So far: {before or 'nothing'}\n\nThen:\n{transcript(names, turns)}",
            system=self._prompts(chat.host).text(_STORY_SUMMARY),
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
