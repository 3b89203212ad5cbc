"""Closing a scene: what it was to each who saw it, what it changed between them, and the next one. S15

The summary stands beside the word-for-word memories rather than in their place (facts and summaries alone are recalled
worse); those that were judged to matter nothing leave recall, and the summary carries the scene's weight.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, Field

from coterie.base.ids import new_id
from coterie.cast.roster import Roster
from coterie.engine.turns import Timeline, Turn
from coterie.kernel import Draft, Job, Store
from coterie.kernel.worker import Outcome
from coterie.llm.messages import Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.llm.structured import classify
from coterie.memory import Memory
from coterie.memory.writing import NewMemory
from coterie.modes.story.chats import Chat, ChatBook, Scene
from coterie.modes.story.edges import EdgeBook, fingerprint
from coterie.modes.story.events import EdgeSummaryRewritten, SceneClosed, SceneOpened, SceneSummarised
from coterie.modes.story.pins import Pins
from coterie.modes.story.prompting import Prompter
from coterie.modes.story.segments import spoken

_MOST_TURNS = 200
_LONGEST = 6_000
"""Characters of a scene that are given to be summarised; the middle of a longer one is left out."""


class Closing(BaseModel):
    summary: str = Field(
        default="", description="What happened, from this character's point of view, in 2-4 sentences."
    )
    significance: int = Field(default=1, ge=0, le=3)
    relationship: str = Field(default="", description="How the character sees the person now, in a sentence or two.")


class SceneCloser:
    def __init__(self, store: Store, roster: Roster, models: Models, memory: Memory, prompter: Prompter) -> None:
        self._roster = roster
        self._models = models
        self._memory = memory
        self._prompter = prompter
        self._timeline = Timeline(store)
        self._chats = ChatBook(store)
        self._edges = EdgeBook(store)
        self._pins = Pins(store)

    async def job(self, job: Job) -> Outcome:
        chat = self._chats.chat(str(job.payload["room"]))
        reply = self._timeline.turn(chat.room, str(job.payload["turn"]))
        drafts: list[Draft] = []
        if chat.scene == job.payload["scene"]:
            drafts = await self.close(chat, str(job.payload["why"]), reply)
        # It may have been closed by hand, before or meanwhile.
        still = self._chats.chat(chat.room).scene == job.payload["scene"]
        return Outcome(drafts if still else ())

    async def close(self, chat: Chat, why: str, last: Turn | None, *, by_hand: bool = False) -> list[Draft]:
        """Everything that closing comes to, to be recorded in one transaction. `last` is the scene's last turn: what
        was said while somebody thought about it belongs to the next scene, and must not be in what is kept of this."""
        if chat.scene is None:
            return []
        scene = self._chats.scene(chat.room, chat.scene)
        turn = last.id if last is not None else None
        before = last.seq + 1 if last is not None else None
        turns = [one for one in self._timeline.latest(chat.room, _MOST_TURNS, before) if one.seq > scene.seq]

        def draft(payload: SceneClosed | SceneSummarised | SceneOpened | EdgeSummaryRewritten) -> Draft:
            return Draft(chat.room, payload, "story", turn=turn)

        drafts = [draft(SceneClosed(scene=scene.id, ends=chat.clock, why=why, by_hand=by_hand))]
        # Whispers stay out: a summary is told before everybody, and their own memories are kept private.
        aloud = [one for one in turns if not one.to and spoken(one)]
        witnesses = self._witnesses(chat, aloud)
        for bot, seen in witnesses.items():
            prior = self._edges.edge(chat.world, bot, chat.person).summary
            closing = await self._summarise(chat, bot, seen, prior)
            summarised = SceneSummarised(
                scene=scene.id, owner=bot, summary=closing.summary, significance=closing.significance
            )
            drafts.append(draft(summarised))
            drafts += self._remember(chat, scene, bot, closing, seen, (*chat.people, *witnesses), turn)
            if closing.relationship:
                rewritten = EdgeSummaryRewritten(
                    world=chat.world,
                    of=bot,
                    toward=chat.person,
                    summary=closing.relationship[:600],
                    rewrites=fingerprint(prior),
                )
                drafts.append(draft(rewritten))
        following = SceneOpened(
            scene=new_id(),
            container=scene.container,
            participants=tuple(chat.everybody),
            starts=chat.clock,
            versions={bot: self._roster.bot(bot).version for bot in chat.characters},
        )
        return [*drafts, draft(following)]

    def _witnesses(self, chat: Chat, turns: Sequence[Turn]) -> dict[str, list[Turn]]:
        """Who saw something of it, also who has left since, with what they saw."""
        there, people = dict.fromkeys(chat.characters), self._chats.people()
        for turn in turns:
            there |= dict.fromkeys(bot for bot in turn.present if bot not in people)
        found: dict[str, list[Turn]] = {}
        for bot in there:
            saw = self._prompter.witnesses.eyes(chat, bot)
            if seen := [turn for turn in turns if saw(turn)]:
                found[bot] = seen
        return found

    async def _summarise(self, chat: Chat, bot: str, seen: Sequence[Turn], prior: str) -> Closing:
        present = self._prompter.names(chat)
        names = {entity: self._prompter.name(present, entity) for entity in {bot, *(one.speaker for one in seen)}}
        who = present[chat.person]
        prompt = Prompt.of(
            f"{script(names, seen)}\n\nHow {names[bot]} saw {who} before: {prior or 'nothing is noted'}",
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
        return Closing(summary=in_short(names, seen))

    def _remember(
        self,
        chat: Chat,
        scene: Scene,
        bot: str,
        closing: Closing,
        seen: Sequence[Turn],
        witnesses: Sequence[str],
        turn: str | None,
    ) -> list[Draft]:
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
        (planned,) = self._memory.writing.plan([new], near=False, actor="story", turn=turn)
        drafts = list(planned.drafts)
        if closing.significance == 3 and planned.verdict == "added":
            drafts += self._pins.pin(chat.room, bot, [planned.id], turn)
        return drafts


def script(names: dict[str, str], turns: Sequence[Turn]) -> str:
    text = "\n".join(f"{names.get(turn.speaker, turn.speaker)}: {spoken(turn)}" for turn in turns if spoken(turn))
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST // 2]}\n[…]\n{text[-_LONGEST // 2 :]}"


def in_short(names: dict[str, str], turns: Sequence[Turn]) -> str:
    """Without a model: how it began and how it ended."""
    said = [f"{names.get(turn.speaker, turn.speaker)}: {spoken(turn)[:160]}" for turn in turns if spoken(turn)]
    return " … ".join([*said[:1], *said[-2:]] if len(said) > 3 else said)
