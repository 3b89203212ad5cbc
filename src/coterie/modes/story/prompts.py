"""Fitting a prompt into a budget: what must be there stays, the rest shrinks in order, and everything says why. S13"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.characters.cards.lore_scan import LoreContext, LoreMatch, LorePosition, find_lore
from coterie.characters.cards.macros import Macros
from coterie.characters.service import OWNER, Character, Characters, OwnerProfile
from coterie.characters.workspace import Workspaces, WorkspaceTexts
from coterie.conversation.length_limit import LengthLimit
from coterie.conversation.speaker_guard import SpeakerGuard
from coterie.conversation.turns import Turn, TurnQueries
from coterie.eventstore import Store
from coterie.llm.messages import Prompt, PromptMessage
from coterie.llm.router import Models
from coterie.llm.settings import Role
from coterie.memory import Memory
from coterie.memory.recall import RecalledMemory
from coterie.modes.story.events import Activity, PromptSent, SentPromptPart
from coterie.modes.story.queries import Chat, ChatQueries, Participants, RelationshipQueries
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import turn_text

Tier = Literal["must", "should", "nice"]
MessageRole = Literal["system", "user", "assistant"]


class PromptTooLong(CoterieError):
    """What must be in the prompt does not fit the model at all."""


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt before it is sent. `order` is where it stands; `give_up` when it goes, low first."""

    name: str
    tier: Tier
    role: MessageRole
    text: str
    tokens: int
    order: tuple[int, float]
    drop_order: int = 0
    label: str = ""
    """What a person would call it, where its name does not say."""
    replacement: PromptPart | None = None
    """What takes its place when it goes; several pieces may share one."""

    @functools.cached_property
    def sha(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass
class FittedPrompt:
    parts: list[PromptPart]
    tokens: int
    trimmed: list[str] = field(default_factory=list)


def fit_to_budget(parts: Sequence[PromptPart], *, soft: int, hard: int) -> FittedPrompt:
    """Trim NICE until the soft budget holds, then SHOULD until the hard one does. MUST is never touched."""
    must = sum(piece.tokens for piece in parts if piece.tier == "must")
    if must > hard:
        raise _too_long([piece for piece in parts if piece.tier == "must"], must, hard)
    kept = {piece.name: piece for piece in parts}
    total = sum(piece.tokens for piece in kept.values())
    trimmed: list[str] = []
    # Where MUST alone is over the soft budget, what should be there may use the room up to the hard one.
    budgets: tuple[tuple[Tier, int], ...] = (("nice", soft), ("should", soft if must <= soft else hard))
    for tier, budget in budgets:
        going = sorted((p for p in kept.values() if p.tier == tier), key=lambda p: (p.drop_order, p.order))
        for piece in going:
            if total <= budget:
                break
            del kept[piece.name]
            total -= piece.tokens
            instead = piece.replacement
            if instead is not None and instead.name not in kept:
                kept[instead.name] = instead
                total += instead.tokens
            swap = f", {instead.name} instead" if instead is not None else ""
            trimmed.append(f"{piece.name} ({piece.tokens} tokens): over the budget of {budget}{swap}")
    return FittedPrompt(sorted(kept.values(), key=lambda piece: piece.order), total, trimmed)


def _too_long(must: Sequence[PromptPart], needed: int, hard: int) -> PromptTooLong:
    longest = sorted(must, key=lambda piece: -piece.tokens)[:2]
    named = " and ".join(f"{piece.label or piece.name} ({piece.tokens} tokens)" for piece in longest)
    return PromptTooLong(
        f"What has to be in the prompt needs {needed} tokens, and {hard} are allowed. The longest parts: {named}.",
        "Shorten them, or choose a model with a larger context in Settings → Models.",
    )


# Where the pieces of a prompt are laid out, each counted, named, and with its macros read.


SYSTEM, DIALOGUE = 0, 1
"""The two places a piece can stand in."""


class PromptDraft:
    def __init__(self, count: Callable[[str], int], names: dict[str, str], bot: Character, macros: Macros) -> None:
        self.count_tokens = count
        self.names = names
        self.character = bot
        self.macros = macros
        self.parts: list[PromptPart] = []
        self._names: dict[str, int] = {}

    def add(self, name: str, tier: Tier, text: str, *, drop_order: int = 0, label: str = "") -> None:
        if text.strip() and (told := self.macros.expand(text)).strip():
            self.append(self.part(name, tier, told, drop_order=drop_order, label=label))

    def append(self, part: PromptPart) -> None:
        """Two pieces never share a name: two lore entries may."""
        times = self._names[part.name] = self._names.get(part.name, 0) + 1
        self.parts.append(part if times == 1 else replace(part, name=f"{part.name} ({times})"))

    def part(
        self,
        name: str,
        tier: Tier,
        text: str,
        *,
        role: MessageRole = "system",
        order: tuple[int, float] | None = None,
        drop_order: int = 0,
        label: str = "",
        replacement: PromptPart | None = None,
    ) -> PromptPart:
        place = order or (SYSTEM, len(self.parts))
        return PromptPart(name, tier, role, text, self.count_tokens(text), place, drop_order, label, replacement)


# Where a card's lore stands in a prompt: around the character's description, or deep in the dialogue. S9, S13
#
# An entry says so itself, with its position and with decorators (`@@depth`, `@@role`, `@@position`). What it says takes
# tokens like anything else, and goes when there is no room.


_LORE_DROP_ORDER = 4


class ActiveLore:
    """What comes up now, to be laid out place by place."""

    def __init__(self, told: Sequence[LoreMatch] = ()) -> None:
        self._entries = told

    @classmethod
    def find(cls, store: Store, desk: PromptDraft, said: Sequence[Turn]) -> ActiveLore:
        """`said` are the turns that will be told, oldest first."""
        if desk.character.card is None or desk.character.card.lorebook is None:
            return cls()
        replies = store.query(
            "SELECT count(*) FROM turn WHERE room = ? AND speaker = ?",
            (said[-1].room if said else "", desk.character.id),
        )
        messages = [turn_text(turn) for turn in said]
        moment = LoreContext(messages=messages, replies=int(replies[0][0]), macros=desk.macros)
        return cls(find_lore(desk.character.card.lorebook, moment, desk.count_tokens).included)

    @property
    def replaces_instructions(self) -> bool:
        """Whether the card wants to be told without our own words on how to play: `@@disable_ui_prompt`."""
        return any(lore.entry.decorators.disable_ui_prompt == "system_prompt" for lore in self._entries)

    def add_to(self, desk: PromptDraft, *spots: LorePosition) -> None:
        for lore in self._entries:
            if lore.position in spots:
                desk.append(desk.part(_lore_name(lore), _lore_tier(lore), lore.text, drop_order=_LORE_DROP_ORDER))

    def add_to_dialogue(self, desk: PromptDraft, said: Sequence[Turn]) -> None:
        """So many messages from the newest, in the role the entry asks for."""
        for lore in self._entries:
            if lore.position == "at_depth":
                before = len(said) - lore.depth
                seq = said[before].seq - 0.5 if 0 <= before < len(said) else said[-1].seq + 0.5 if said else 0.0
                order = (DIALOGUE, seq)
                piece = desk.part(
                    _lore_name(lore),
                    _lore_tier(lore),
                    lore.text,
                    role=lore.role,
                    order=order,
                    drop_order=_LORE_DROP_ORDER,
                )
                desk.append(piece)


def _lore_name(lore: LoreMatch) -> str:
    return f"lore {lore.entry.name or lore.entry.index}"


def _lore_tier(lore: LoreMatch) -> Tier:
    return "nice" if lore.entry.decorators.ignore_on_max_context else "should"


# Everything a character is told before it speaks, and where each word of it comes from. S13
#
# Parts come in tiers: MUST (who it is, who it speaks with, the scene, the last turns, the message), SHOULD (feelings,
# activities, pinned and recalled memories, lore) and NICE (older dialogue, more memories, weather). What a character did
# not witness is not among them, whoever wrote it: earlier turns, whispers to others, notes to the player.


_LAST_TURNS, _MIN_LAST_TURNS = 6, 2
"""How many of the newest turns are always told: fewer where they would take more than half of a small context."""
_MAX_TURNS, _PAGE = 200, 50
_SHOULD_RECALLED = 2
_MAX_RECALLED = 100
_GENERIC_NAMES = ("You", "User")
"""What models call the person, whatever their name is."""
_MAX_STOPS = 4
"""Providers take no more."""
_OVERHEAD_TOKENS = 6
"""Tokens that go into the marks around a message or between two parts."""


@dataclass(frozen=True)
class AssembledPrompt:
    prompt: Prompt
    sent: PromptSent
    recalled: list[RecalledMemory]
    first_turn_seq: int | None
    """The number of the first turn that was told as dialogue, if earlier ones had to be left out."""
    speaker_guard: SpeakerGuard
    """Ends the reply where it would begin to speak for others."""


class PromptBuilder:
    def __init__(
        self,
        store: Store,
        roster: Characters,
        memory: Memory,
        models: Models,
        settings: StorySettings,
        clock: Clock,
        participants: Participants,
        workspaces: Workspaces | None = None,
    ) -> None:
        self._store = store
        self._participants = participants
        self.workspaces = workspaces
        self._roster = roster
        self._memory = memory
        self._models = models
        self._settings = settings
        self._clock = clock
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)
        self._relationship_queries = RelationshipQueries(store)

    def assemble(self, chat: Chat, speaker: str, reply: str, to: Sequence[str] = ()) -> AssembledPrompt:
        """The prompt for a speaker's next reply, spoken before everybody or to those a whisper was for."""
        bot = self._roster.get(speaker, chat.version_of(speaker))
        names = self._participants.names(chat)
        saw = self._participants.turns_seen_by(chat, speaker)
        soft, hard = self._budgets()
        desk = PromptDraft(self._counter(), names, bot, self._macros(chat, bot, names))
        heard = {self._last_person(chat), *to} if to else set(chat.participants)

        def may_tell(turn: Turn) -> bool:
            known = saw(turn) and (turn.text or turn.state != "open")
            return bool(known and (not turn.to or heard <= {turn.speaker, *turn.to}))

        turns, more = self._last_turns(desk, chat.room, may_tell, soft)
        recalled = self._recall(chat, speaker, turns, heard)
        said = [turn for turn in turns if turn_text(turn)]
        lore = ActiveLore.find(self._store, desk, said)
        self._identity(desk, chat, lore)
        self._scene(desk, chat)
        lore.add_to(desk, "scenario")
        self._relationships(desk, chat)
        self._memories(desk, chat, recalled, heard)
        lore.add_to_dialogue(desk, said)
        self._dialogue(desk, chat, said, hard, more=more)
        fitted = fit_to_budget(desk.parts, soft=soft, hard=hard)
        known = self._known_texts(chat.room, [piece.sha for piece in fitted.parts])
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        sent = PromptSent(
            reply=reply,
            model=str(target),
            tokens=fitted.tokens,
            soft=soft,
            hard=hard,
            parts=tuple(
                SentPromptPart(name=p.name, tier=p.tier, role=p.role, tokens=p.tokens, sha=p.sha) for p in fitted.parts
            ),
            texts={p.sha: p.text for p in fitted.parts if p.sha not in known},
            trimmed=tuple(fitted.trimmed),
            recalled={memory.id: memory.parts for memory in recalled},
        )
        used = {piece.name for piece in fitted.parts}
        kept = [memory for memory in recalled if f"memory {memory.id}" in used]
        told = [int(piece.order[1]) for piece in fitted.parts if piece.name.startswith("turn ")]
        shortened = more or any(line.startswith("turn ") for line in fitted.trimmed)
        others = [name for entity, name in names.items() if entity != speaker]
        return AssembledPrompt(
            self.to_prompt(fitted.parts, others),
            sent,
            kept,
            min(told) if told and shortened else None,
            SpeakerGuard([bot.name, desk.macros.char], [*others, *_GENERIC_NAMES], self._length_limit()),
        )

    def to_prompt(self, pieces: Sequence[PromptPart], others: Sequence[str] = ()) -> Prompt:
        system = "\n\n".join(piece.text for piece in pieces if piece.order[0] == SYSTEM)
        messages = [PromptMessage(role="system", text=system)]
        for piece in pieces:
            if piece.order[0] == SYSTEM:
                continue
            if messages[-1].role == piece.role:  # providers want people and model to take turns
                joined = f"{messages[-1].text}\n\n{piece.text}"
                messages[-1] = PromptMessage(role=piece.role, text=joined)
            else:
                messages.append(PromptMessage(role=piece.role, text=piece.text))
        # Who would speak for others stops by itself, where the provider knows how.
        stop = tuple(f"\n{name}:" for name in others[:_MAX_STOPS])
        return Prompt(messages=tuple(messages), max_tokens=self._settings.reply_tokens, temperature=0.9, stop=stop)

    def _last_person(self, chat: Chat) -> str:
        """Who spoke last of the people: a whisper is answered to them alone."""
        latest = self._timeline.latest(chat.room, _LAST_TURNS)
        return next((turn.speaker for turn in reversed(latest) if turn.by_person), chat.person)

    def _budgets(self) -> tuple[int, int]:
        """S13: the model's own context is what really counts, where it is known."""
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        context = self._models.catalogue.details(target).context
        hard = self._settings.narrative_budget_hard
        if context is not None:
            hard = min(hard, context - min(self._settings.reply_tokens, context // 4) - 64)
        return min(self._settings.narrative_budget_soft, hard * 3 // 4), hard

    def _length_limit(self) -> LengthLimit:
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        return LengthLimit(self._models.catalogue.details(target).max_story_words)

    def _counter(self) -> Callable[[str], int]:
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        count = self._models.tokens.counter(target)
        return lambda text: count(text) + _OVERHEAD_TOKENS

    def _macros(self, chat: Chat, bot: Character, names: dict[str, str]) -> Macros:
        char = (bot.card.data.nickname if bot.card else "") or bot.name
        return Macros(char=char, user=names[chat.person], rng=random.Random(chat.room), seed=chat.room)  # noqa: S311

    def _identity(self, desk: PromptDraft, chat: Chat, lore: ActiveLore) -> None:
        who, company = desk.character.identity, [self._participants.person(person) for person in chat.people]
        own = self.workspaces.texts(who.id) if self.workspaces is not None else WorkspaceTexts()
        about = own.user if OWNER in chat.people else ""  # USER.md is about the owner
        card = desk.character.card.data if desk.character.card else None
        names = " or ".join(you.name for you in company)
        only = f" You write only what {who.name} says and does, in prose, never what {names} does."
        lore.add_to(desk, "before_char", "before_desc")
        parts = [
            card.system_prompt if card else "",
            f"You are {who.name}.{'' if lore.replaces_instructions else only}",
            own.identity or who.persona,
            f"Traits: {', '.join(who.traits)}." if who.traits else "",
            who.backstory,
        ]
        desk.add("identity", "must", "\n\n".join(part for part in parts if part), label=f"who {who.name} is")
        lore.add_to(desk, "after_desc", "personality", "after_char")
        present = "\n".join(_person_text(you, about, alone=len(company) == 1) for you in company)
        desk.add("you", "must", present, label="who you are")
        desk.add("soul", "must", own.soul, label="SOUL.md")
        for number, sample in enumerate(who.voice_samples):
            desk.add(f"voice {number + 1}", "should", f"How {who.name} sounds:\n{sample}", drop_order=2 + number)
        if card and card.post_history_instructions:
            desk.add("instructions", "must", card.post_history_instructions, label="the card's instructions")
        others = [desk.names[bot] for bot in chat.characters if bot != who.id]
        if others:
            desk.add("others", "must", f"Also here: {', '.join(others)}. They speak for themselves.")

    def _scene(self, desk: PromptDraft, chat: Chat) -> None:
        where = ""
        if chat.scene is not None:
            scene = self._chats.scene(chat.room, chat.scene)
            where = f" at {self._chats.container_name(chat.room, scene.container)}" if scene.container else ""
        anchor = f" {chat.anchor}" if chat.anchor else ""
        desk.add("scene", "must", f"It is {chat.clock:%A, %d %B %Y, %H:%M}{where}.{anchor}")
        places = {place.id: place.name for place in self._chats.containers(chat.room).values()}
        for entity, activity in self._chats.activities(chat.room).items():
            text = _activity_text(desk.names.get(entity, entity), activity, places)
            desk.add(f"activity of {entity}", "should", text, drop_order=8)
        if chat.weather:
            desk.add("weather", "nice", f"The weather: {chat.weather}.", drop_order=_MAX_RECALLED + 1)

    def _relationships(self, desk: PromptDraft, chat: Chat) -> None:
        for edge in self._relationship_queries.in_world(chat.world):
            if edge.of != desk.character.id or edge.toward not in desk.names:
                continue
            name = desk.names[edge.toward]
            known = "".join(f"\n- {fact}" for fact in edge.knowledge[-12:])
            facts = f"\nWhat you know of {name}:{known}" if known else ""
            told = f"{edge.summary}{facts}"
            if edge.toward in chat.people and len(chat.people) > 1:
                told = ""  # what is known of one person is not for another to hear
            text = f"You feel for {name}: affinity {edge.affinity} of 100, trust {edge.trust}. {told}"
            desk.add(f"feelings toward {edge.toward}", "should", text.strip(), drop_order=9)

    def _memories(self, desk: PromptDraft, chat: Chat, recalled: list[RecalledMemory], heard: set[str]) -> None:
        pinned = self._memory.recall(
            owner=desk.character.id,
            room=chat.room,
            present=heard,
            people=self._participants.everyone(),
            mode="recent",
            pinned=True,
            k=8,
            now=self._clock.now(),
        )
        shown: set[str] = set()
        for memory in pinned:
            shown.add(memory.id)
            desk.add(f"pinned {memory.id}", "should", f"You will never forget: {memory.text}", drop_order=10)
        for rank, memory in enumerate(recalled):
            if memory.id in shown:
                continue
            tier: Tier = "should" if rank < _SHOULD_RECALLED else "nice"
            # Among what is nice, after older dialogue; the less it fits, the sooner.
            last = 5 if tier == "should" else _MAX_RECALLED
            desk.add(f"memory {memory.id}", tier, f"You remember: {memory.text}", drop_order=last - rank)

    def _dialogue(self, desk: PromptDraft, chat: Chat, turns: Sequence[Turn], hard: int, *, more: bool) -> None:
        """The turns; `more` says that there are earlier ones than these."""
        summary = self._summary_piece(desk, chat)
        if summary is not None and more:
            desk.append(summary)
        room = hard // 2
        for number, turn in enumerate(reversed(turns)):
            mine = turn.speaker == desk.character.id
            text = self._turn_text(desk, turn)
            room -= desk.count_tokens(text) if number < _LAST_TURNS else 0
            always = number < _MIN_LAST_TURNS or (number < _LAST_TURNS and room >= 0)
            piece = desk.part(
                f"turn {turn.id}",
                "must" if always else "nice",
                text,
                role="assistant" if mine else "user",
                order=(DIALOGUE, turn.seq),
                label="your message" if number == 0 else f'the earlier turn "{text[:40]}…"',
                replacement=None if always else summary,
            )
            desk.append(piece)

    def _last_turns(
        self, desk: PromptDraft, room: str, may_tell: Callable[[Turn], bool], budget: int
    ) -> tuple[list[Turn], bool]:
        """The newest turns, oldest first, until they alone fill the budget; and whether there are earlier ones."""
        turns: list[Turn] = []
        before = None
        for _ in range(_MAX_TURNS // _PAGE):
            page = self._timeline.latest(room, _PAGE, before)
            told = [turn for turn in page if may_tell(turn)]
            turns = told + turns
            if len(page) < _PAGE:
                return turns, False
            budget -= sum(desk.count_tokens(self._turn_text(desk, turn)) for turn in told)
            if budget < 0:
                break
            before = page[0].seq
        return turns, True

    def _turn_text(self, desk: PromptDraft, turn: Turn) -> str:
        """A turn as it stands in the prompt."""
        told = turn_text(turn)
        return (
            told
            if turn.speaker == desk.character.id
            else f"{self._participants.name(desk.names, turn.speaker)}: {told}"
        )

    def _summary_piece(self, desk: PromptDraft, chat: Chat) -> PromptPart | None:
        """What stands in for older dialogue: the scenes as this character saw them, and the talk in short."""
        summaries = self._chats.scene_summaries(chat.room, desk.character.id)[-5:]
        talk = self._chats.dialogue_summary(chat.room)
        if talk is not None and desk.character.id == chat.host:  # who is always there may know all that was said aloud
            summaries.append(talk[1])
        if not summaries:
            return None
        text = "What happened before, in short:\n" + "\n".join(summaries)
        return desk.part("summary", "should", text, order=(SYSTEM, 900), drop_order=7)

    def _recall(self, chat: Chat, speaker: str, turns: Sequence[Turn], heard: set[str]) -> list[RecalledMemory]:
        if not turns or not self._settings.retrieval_k:
            return []
        shown = {turn.id for turn in turns[-_LAST_TURNS * 2 :]}
        question = " ".join(turn_text(turn) for turn in turns[-2:])
        found = self._memory.recall(
            question,
            owner=speaker,
            room=chat.room,
            present=heard,
            people=self._participants.everyone(),
            k=self._settings.retrieval_k + len(shown),
            now=self._clock.now(),
        )
        # What is told as dialogue anyway need not be remembered too.
        fresh = [one for one in found if not shown & set(one.memory.sources)]
        return fresh[: self._settings.retrieval_k]

    def _known_texts(self, room: str, shas: Sequence[str]) -> set[str]:
        marks = ", ".join("?" * len(shas))
        sql = f"SELECT sha FROM prompt_text WHERE room = ? AND sha IN ({marks})"  # noqa: S608
        return {sha for (sha,) in self._store.query(sql, (room, *shas))}


def _person_text(you: OwnerProfile, about: str, *, alone: bool) -> str:
    pronouns = you.pronouns and f" ({you.pronouns})"
    told = (about or you.persona) if alone else you.persona
    return f"{you.name}{pronouns} is {'the person' if alone else 'one of those'} you are with." + (told and f"\n{told}")


def _activity_text(name: str, activity: Activity, places: dict[str, str]) -> str:
    parts = [
        f"in {places.get(activity.container, activity.container)}" if activity.container else "",
        activity.slot,
        activity.posture,
        activity.action.verb,
        f"holding {', '.join(activity.holding)}" if activity.holding else "",
        f"attending to {activity.attention}" if activity.attention else "",
        activity.status,
    ]
    said = ", ".join(part for part in parts if part)
    return f"{name}: {said}." if said else ""
