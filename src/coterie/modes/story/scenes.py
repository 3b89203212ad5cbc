"""Closing a scene: what it was to each who saw it, what it changed between them, and the next one. S15

The summary stands beside the word-for-word memories rather than in their place (facts and summaries alone are recalled
worse); those that were judged to matter nothing leave recall, and the summary carries the scene's weight.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from coterie.base.ids import new_id
from coterie.cast.roster import Characters
from coterie.engine.turns import Turn, TurnQueries
from coterie.kernel import Job, NewEvent, Store
from coterie.kernel.worker import JobResult
from coterie.llm.messages import Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.memory import Memory
from coterie.memory.writing import NewMemory
from coterie.modes.story.chats import Chat, ChatQueries, StoryScene
from coterie.modes.story.edges import RelationshipQueries, summary_hash
from coterie.modes.story.events import RelationshipSummaryRewritten, SceneClosed, SceneOpened, SceneSummarised
from coterie.modes.story.pins import Pins
from coterie.modes.story.prompting import PromptBuilder
from coterie.modes.story.segments import turn_text

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
        self, store: Store, roster: Characters, models: Models, memory: Memory, prompter: PromptBuilder
    ) -> None:
        self._roster = roster
        self._models = models
        self._memory = memory
        self._prompter = prompter
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
            saw = self._prompter.witnesses.turns_seen_by(chat, bot)
            if seen := [turn for turn in turns if saw(turn)]:
                found[bot] = seen
        return found

    async def _summarise(self, chat: Chat, bot: str, seen: Sequence[Turn], prior: str) -> Closing:
        present = self._prompter.names(chat)
        names = {entity: self._prompter.name(present, entity) for entity in {bot, *(one.speaker for one in seen)}}
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
