"""Builds the prompt of a reply from named parts, and fits them into the model's token budget.

Parts have a tier: MUST (identity, people, scene, last turns), SHOULD (relationships, activities, pinned and recalled
memories, lore) and NICE (older dialogue, more memories, weather). A prompt contains only what its speaker may know: no
turns it did not witness, no whispers to others, no out-of-character notes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError
from coterie.base.untrusted import join_lines
from coterie.characters import (
    OWNER,
    Character,
    Characters,
    LoreContext,
    LoreMatch,
    LorePosition,
    Macros,
    OwnerProfile,
    Workspaces,
    WorkspaceTexts,
    find_lore,
)
from coterie.conversation import LengthLimit, SpeakerGuard, Turn, TurnQueries
from coterie.eventstore import Store
from coterie.llm import Models, Prompt, PromptMessage, Role
from coterie.memory import Memory, RecalledMemory
from coterie.modes.story.events import Activity, PromptSent, SentPromptPart
from coterie.modes.story.queries import Chat, ChatQueries, Participants, RelationshipQueries
from coterie.modes.story.sent_prompts import PromptQueries, shorten_parts
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import turn_text

Tier = Literal["must", "should", "nice"]
MessageRole = Literal["system", "user", "assistant"]

SYSTEM, DIALOGUE = 0, 1
"""The two sections of a prompt: the system message, and the messages after it."""
_LORE_DROP_ORDER = 4
_LAST_TURNS, _MIN_LAST_TURNS = 6, 2
"""How many of the newest turns are always included; fewer if they would take more than half of a small context."""
_MAX_TURNS, _PAGE = 200, 50
_SHOULD_RECALLED = 2
_MAX_RECALLED = 100
_MAX_PINNED = 8
_MAX_FACTS = 12
_MAX_SCENE_SUMMARIES = 5
_GENERIC_NAMES = ("You", "User")
"""What models call the person, besides their name."""
_MAX_STOPS = 4
"""The number of stop sequences that providers accept."""
_OVERHEAD_TOKENS = 6
"""Tokens for the markup around a message or between two parts."""


class PromptTooLong(CoterieError):
    """The MUST parts of a prompt exceed the model's context."""


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt. `order` is its section and position; parts with a low `drop_order` are dropped first."""

    name: str
    tier: Tier
    role: MessageRole
    text: str
    tokens: int
    order: tuple[int, float]
    drop_order: int = 0
    label: str = ""
    """How an error message refers to it, if not by its name."""
    replacement: PromptPart | None = None
    """Added once this part is dropped; several parts may share one."""


@dataclass
class FittedPrompt:
    parts: list[PromptPart]
    tokens: int
    trimmed: list[str] = field(default_factory=list)


def fit_to_budget(parts: Sequence[PromptPart], *, soft: int, hard: int) -> FittedPrompt:
    """Drop NICE parts, then SHOULD parts, until the budget holds. MUST parts are never dropped."""
    must = sum(part.tokens for part in parts if part.tier == "must")
    if must > hard:
        raise _too_long([part for part in parts if part.tier == "must"], must, hard)
    kept = {part.name: part for part in parts}
    total = sum(part.tokens for part in kept.values())
    trimmed: list[str] = []
    # If the MUST parts alone exceed the soft budget, SHOULD parts may use the tokens up to the hard one.
    budgets: tuple[tuple[Tier, int], ...] = (("nice", soft), ("should", soft if must <= soft else hard))
    for tier, budget in budgets:
        for part in sorted((p for p in kept.values() if p.tier == tier), key=lambda p: (p.drop_order, p.order)):
            if total <= budget:
                break
            del kept[part.name]
            total -= part.tokens
            replaced = ""
            if (replacement := part.replacement) is not None:
                replaced = f", {replacement.name} instead"
                if replacement.name not in kept:
                    kept[replacement.name] = replacement
                    total += replacement.tokens
            trimmed.append(f"{part.name} ({part.tokens} tokens): over the budget of {budget}{replaced}")
    return FittedPrompt(sorted(kept.values(), key=lambda part: part.order), total, trimmed)


_TRIMMED_TURN = re.compile(r"turn \S+ \((\d+) tokens\)(: .*)", re.DOTALL)


def _merge_turns(trimmed: Sequence[str]) -> Iterator[str]:
    """The sentences about what was left out, with those about consecutive turns as one."""
    matches = [(line, _TRIMMED_TURN.fullmatch(line)) for line in trimmed]
    for why, group in groupby(matches, key=lambda pair: pair[1] and pair[1][2]):
        lines = list(group)
        if why is None or len(lines) == 1:
            yield from (line for line, _ in lines)
        else:
            yield f"{len(lines)} turns ({sum(int(match[1]) for _, match in lines if match)} tokens){why}"


def _too_long(must: Sequence[PromptPart], needed: int, hard: int) -> PromptTooLong:
    longest = sorted(must, key=lambda part: -part.tokens)[:2]
    named = " and ".join(f"{part.label or part.name} ({part.tokens} tokens)" for part in longest)
    return PromptTooLong(
        f"What has to be in the prompt needs {needed} tokens, and {hard} are allowed. The longest parts: {named}.",
        "Shorten them, or choose a model with a larger context in Settings → Models.",
    )


class PromptDraft:
    """The parts of a prompt for one character, with their tokens counted and their macros expanded."""

    def __init__(
        self, count_tokens: Callable[[str], int], names: dict[str, str], character: Character, macros: Macros
    ) -> None:
        self.count_tokens = count_tokens
        self.names = names
        self.character = character
        self.macros = macros
        self.parts: list[PromptPart] = []
        self._names: dict[str, int] = {}

    def add(self, name: str, tier: Tier, text: str, *, drop_order: int = 0, label: str = "") -> None:
        """Add a part to the system message, unless its text is empty."""
        if text.strip() and (expanded := self.macros.expand(text)).strip():
            self.append(self.part(name, tier, expanded, drop_order=drop_order, label=label))

    def append(self, part: PromptPart) -> None:
        """Add a part; a name that occurs again, such as that of a lore entry, gets a number."""
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
        order = order or (SYSTEM, len(self.parts))
        return PromptPart(name, tier, role, text, self.count_tokens(text), order, drop_order, label, replacement)


class ActiveLore:
    """The lore entries of a character's card that match now, placed as their positions and decorators ask."""

    def __init__(self, matches: Sequence[LoreMatch] = ()) -> None:
        self._matches = matches

    @classmethod
    def find(cls, store: Store, draft: PromptDraft, turns: Sequence[Turn]) -> ActiveLore:
        """`turns` are those of the prompt, oldest first."""
        if draft.character.card is None or draft.character.card.lorebook is None:
            return cls()
        replies = store.query(
            "SELECT count(*) FROM turn WHERE room = ? AND speaker = ?",
            (turns[-1].room if turns else "", draft.character.id),
        )
        messages = [turn_text(turn) for turn in turns]
        context = LoreContext(messages=messages, replies=int(replies[0][0]), macros=draft.macros)
        return cls(find_lore(draft.character.card.lorebook, context, draft.count_tokens).included)

    @property
    def replaces_instructions(self) -> bool:
        """Whether an entry replaces our instructions to the character (`@@disable_ui_prompt`)."""
        return any(lore.entry.decorators.disable_ui_prompt == "system_prompt" for lore in self._matches)

    def add_to(self, draft: PromptDraft, *positions: LorePosition) -> None:
        for lore in self._matches:
            if lore.position in positions:
                draft.append(draft.part(_lore_name(lore), _lore_tier(lore), lore.text, drop_order=_LORE_DROP_ORDER))

    def add_to_dialogue(self, draft: PromptDraft, turns: Sequence[Turn]) -> None:
        """Add the entries that stand a number of messages before the newest one, in the role they ask for."""
        for lore in self._matches:
            if lore.position != "at_depth":
                continue
            before = len(turns) - lore.depth
            seq = turns[before].seq - 0.5 if 0 <= before < len(turns) else turns[-1].seq + 0.5 if turns else 0.0
            draft.append(
                draft.part(
                    _lore_name(lore),
                    _lore_tier(lore),
                    lore.text,
                    role=lore.role,
                    order=(DIALOGUE, seq),
                    drop_order=_LORE_DROP_ORDER,
                )
            )


def _lore_name(lore: LoreMatch) -> str:
    return f"lore {lore.entry.name or lore.entry.index}"


def _lore_tier(lore: LoreMatch) -> Tier:
    return "nice" if lore.entry.decorators.ignore_on_max_context else "should"


@dataclass(frozen=True)
class AssembledPrompt:
    prompt: Prompt
    sent: PromptSent
    parts: list[SentPromptPart]
    """All parts of the prompt; `sent` holds only what changed."""
    recalled: list[RecalledMemory]
    first_turn_seq: int | None
    """The seq of the first turn in the dialogue, if earlier ones were left out."""
    speaker_guard: SpeakerGuard
    """Ends the reply where it begins to speak for others."""


class StoryPromptBuilder:
    def __init__(
        self,
        store: Store,
        characters: Characters,
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
        self._characters = characters
        self._memory = memory
        self._models = models
        self._settings = settings
        self._clock = clock
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)
        self._relationships = RelationshipQueries(store)
        self.sent_prompts = PromptQueries(store)

    def assemble(self, chat: Chat, speaker: str, reply: str, to: Sequence[str] = ()) -> AssembledPrompt:
        """The prompt of a speaker's next reply. `to` are the listeners of a whisper, if it is one."""
        character = self._characters.get(speaker, chat.version_of(speaker))
        names = self._participants.names(chat)
        seen = self._participants.turns_seen_by(chat, speaker)
        soft, hard = self._budgets()
        draft = PromptDraft(self._token_counter(), names, character, self._macros(chat, character, names))
        listeners = {self._last_person(chat), *to} if to else set(chat.participants)

        def allowed(turn: Turn) -> bool:
            complete = turn.text or turn.state != "open"
            return bool(complete and seen(turn) and (not turn.to or listeners <= {turn.speaker, *turn.to}))

        turns, more = self._last_turns(draft, chat.room, allowed, soft)
        recalled = self._recall(chat, speaker, turns, listeners)
        turns = [turn for turn in turns if turn_text(turn)]
        lore = ActiveLore.find(self._store, draft, turns)
        self._add_identity(draft, chat, lore)
        self._add_scene(draft, chat)
        lore.add_to(draft, "scenario")
        self._add_relationships(draft, chat)
        self._add_memories(draft, chat, recalled, listeners)
        lore.add_to_dialogue(draft, turns)
        self._add_dialogue(draft, chat, turns, hard, more=more)
        fitted = fit_to_budget(draft.parts, soft=soft, hard=hard)
        parts = [
            SentPromptPart(name=p.name, tier=p.tier, role=p.role, tokens=p.tokens, text=p.text) for p in fitted.parts
        ]
        base = self.sent_prompts.latest(chat.room)
        depth = base.depth + 1 if base is not None else 0
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        sent = PromptSent(
            reply=reply,
            model=str(target),
            tokens=fitted.tokens,
            soft=soft,
            hard=hard,
            base=base.seq if base is not None else 0,
            depth=depth,
            parts=shorten_parts(base.parts if base is not None else (), parts),
            trimmed=tuple(_merge_turns(fitted.trimmed)),
            recalled={memory.id: memory.parts for memory in recalled},
        )
        self.sent_prompts.remember(chat.room, reply, depth, parts)
        used = {part.name for part in fitted.parts}
        kept = [memory for memory in recalled if f"memory {memory.id}" in used]
        seqs = [int(part.order[1]) for part in fitted.parts if part.name.startswith("turn ")]
        shortened = more or any(line.startswith("turn ") for line in fitted.trimmed)
        others = [name for entity, name in names.items() if entity != speaker]
        return AssembledPrompt(
            self.to_prompt(fitted.parts, others),
            sent,
            parts,
            kept,
            min(seqs) if seqs and shortened else None,
            SpeakerGuard([character.name, draft.macros.char], [*others, *_GENERIC_NAMES], self._length_limit()),
        )

    def check_fits(self, chat: Chat, speakers: Iterable[str], text: str, last: Sequence[Turn] = ()) -> None:
        """Raise `PromptTooLong` if a message does not fit into a prompt of these speakers, before it is stored.

        `last` are the turns that a prompt has to contain besides the message.
        """
        _, hard = self._budgets()
        names = self._participants.names(chat)
        for speaker in speakers:
            character = self._characters.get(speaker, chat.version_of(speaker))
            draft = PromptDraft(self._token_counter(), names, character, self._macros(chat, character, names))
            self._add_identity(draft, chat, ActiveLore())
            self._add_scene(draft, chat)
            labelled = [("the last turn", self._turn_text(draft, turn)) for turn in last]
            for label, required in [*labelled, ("your message", text)]:
                draft.append(draft.part(label, "must", required, label=label))
            fit_to_budget([part for part in draft.parts if part.tier == "must"], soft=hard, hard=hard)

    def to_prompt(self, parts: Sequence[PromptPart], others: Sequence[str] = ()) -> Prompt:
        system = "\n\n".join(part.text for part in parts if part.order[0] == SYSTEM)
        messages = [PromptMessage(role="system", text=system)]
        for part in parts:
            if part.order[0] == SYSTEM:
                continue
            if messages[-1].role == part.role:  # providers require alternating roles
                joined = f"{messages[-1].text}\n\n{part.text}"
                messages[-1] = PromptMessage(role=part.role, text=joined)
            else:
                messages.append(PromptMessage(role=part.role, text=part.text))
        # Ends a reply that begins to speak for others, if the provider supports it.
        stop = tuple(f"\n{name}:" for name in others[:_MAX_STOPS])
        return Prompt(messages=tuple(messages), max_tokens=self._settings.reply_tokens, temperature=0.9, stop=stop)

    def _last_person(self, chat: Chat) -> str:
        """The person who wrote last: the reply to a whisper is for them."""
        latest = self._timeline.latest(chat.room, _LAST_TURNS)
        return next((turn.speaker for turn in reversed(latest) if turn.by_person), chat.person)

    def _budgets(self) -> tuple[int, int]:
        """The soft and the hard budget in tokens, limited by the model's context if that is known."""
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        context = self._models.catalogue.details(target).context
        hard = self._settings.narrative_budget_hard
        if context is not None:
            hard = min(hard, context - min(self._settings.reply_tokens, context // 4) - 64)
        return min(self._settings.narrative_budget_soft, hard * 3 // 4), hard

    def _length_limit(self) -> LengthLimit:
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        return LengthLimit(self._models.catalogue.details(target).max_story_words)

    def _token_counter(self) -> Callable[[str], int]:
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        count = self._models.tokens.counter(target)
        return lambda text: count(text) + _OVERHEAD_TOKENS

    def _macros(self, chat: Chat, character: Character, names: dict[str, str]) -> Macros:
        char = (character.card.data.nickname if character.card else "") or character.name
        return Macros(char=char, user=names[chat.person], rng=random.Random(chat.room), seed=chat.room)  # noqa: S311

    def _add_identity(self, draft: PromptDraft, chat: Chat, lore: ActiveLore) -> None:
        identity, people = draft.character.identity, [self._participants.person(person) for person in chat.people]
        files = self.workspaces.texts(identity.id) if self.workspaces is not None else WorkspaceTexts()
        about_owner = files.user if OWNER in chat.people else ""
        card = draft.character.card.data if draft.character.card else None
        name = join_lines(identity.name)
        names = " or ".join(join_lines(person.name) for person in people)
        only = f" You write only what {name} says and does, in prose, never what {names} does."
        lore.add_to(draft, "before_char", "before_desc")
        paragraphs = [
            card.system_prompt if card else "",
            f"You are {name}.{'' if lore.replaces_instructions else only}",
            files.identity or identity.persona,
            f"Traits: {', '.join(map(join_lines, identity.traits))}." if identity.traits else "",
            identity.backstory,
        ]
        draft.add("identity", "must", "\n\n".join(filter(None, paragraphs)), label=f"who {name} is")
        lore.add_to(draft, "after_desc", "personality", "after_char")
        present = "\n".join(_person_text(person, about_owner, alone=len(people) == 1) for person in people)
        draft.add("you", "must", present, label="who you are")
        draft.add("soul", "must", files.soul, label="SOUL.md")
        for number, sample in enumerate(identity.voice_samples):
            draft.add(f"voice {number + 1}", "should", f"How {name} sounds:\n{sample}", drop_order=2 + number)
        if card and card.post_history_instructions:
            draft.add("instructions", "must", card.post_history_instructions, label="the card's instructions")
        others = [draft.names[character] for character in chat.characters if character != identity.id]
        if others:
            draft.add("others", "must", f"Also here: {', '.join(others)}. They speak for themselves.")

    def _add_scene(self, draft: PromptDraft, chat: Chat) -> None:
        where = ""
        if chat.scene is not None:
            scene = self._chats.scene(chat.room, chat.scene)
            where = (
                f" at {join_lines(self._chats.container_name(chat.room, scene.container))}" if scene.container else ""
            )
        anchor = f" {join_lines(chat.anchor)}" if chat.anchor else ""
        draft.add("scene", "must", f"It is {chat.clock:%A, %d %B %Y, %H:%M}{where}.{anchor}")
        places = {place.id: place.name for place in self._chats.containers(chat.room).values()}
        for entity, activity in self._chats.activities(chat.room).items():
            text = _activity_text(draft.names.get(entity, entity), activity, places)
            draft.add(f"activity of {entity}", "should", text, drop_order=8)
        if chat.weather:
            draft.add("weather", "nice", f"The weather: {join_lines(chat.weather)}.", drop_order=_MAX_RECALLED + 1)

    def _add_relationships(self, draft: PromptDraft, chat: Chat) -> None:
        for edge in self._relationships.in_world(chat.world):
            if edge.of != draft.character.id or edge.toward not in draft.names:
                continue
            name, details = draft.names[edge.toward], ""
            # With several people present, what is known about one of them is not for the others.
            if edge.toward not in chat.people or len(chat.people) == 1:
                facts = "".join(f"\n- {join_lines(fact)}" for fact in edge.knowledge[-_MAX_FACTS:])
                details = join_lines(edge.summary) + (f"\nWhat you know of {name}:{facts}" if facts else "")
            text = f"You feel for {name}: affinity {edge.affinity} of 100, trust {edge.trust}. {details}"
            draft.add(f"feelings toward {edge.toward}", "should", text.strip(), drop_order=9)

    def _add_memories(
        self, draft: PromptDraft, chat: Chat, recalled: list[RecalledMemory], listeners: set[str]
    ) -> None:
        pinned = self._memory.recall(
            owner=draft.character.id,
            room=chat.room,
            present=listeners,
            people=self._participants.everyone(),
            mode="recent",
            pinned=True,
            k=_MAX_PINNED,
            now=self._clock.now(),
        )
        for memory in pinned:
            draft.add(
                f"pinned {memory.id}", "should", f"You will never forget: {join_lines(memory.text)}", drop_order=10
            )
        shown = {memory.id for memory in pinned}
        for rank, memory in enumerate(recalled):
            if memory.id in shown:
                continue
            tier: Tier = "should" if rank < _SHOULD_RECALLED else "nice"
            # NICE memories are dropped after older dialogue; the lower their rank, the sooner.
            last = 5 if tier == "should" else _MAX_RECALLED
            draft.add(f"memory {memory.id}", tier, f"You remember: {join_lines(memory.text)}", drop_order=last - rank)

    def _add_dialogue(self, draft: PromptDraft, chat: Chat, turns: Sequence[Turn], hard: int, *, more: bool) -> None:
        """Add the turns. `more` means that there are earlier ones, which the summary replaces."""
        summary = self._summary_part(draft, chat)
        if summary is not None and more:
            draft.append(summary)
        left = hard // 2
        for number, turn in enumerate(reversed(turns)):
            text = self._turn_text(draft, turn)
            left -= draft.count_tokens(text) if number < _LAST_TURNS else 0
            always = number < _MIN_LAST_TURNS or (number < _LAST_TURNS and left >= 0)
            draft.append(
                draft.part(
                    f"turn {turn.id}",
                    "must" if always else "nice",
                    text,
                    role="assistant" if turn.speaker == draft.character.id else "user",
                    order=(DIALOGUE, turn.seq),
                    label="your message" if number == 0 else f'the earlier turn "{text[:40]}…"',
                    replacement=None if always else summary,
                )
            )

    def _last_turns(
        self, draft: PromptDraft, room: str, allowed: Callable[[Turn], bool], budget: int
    ) -> tuple[list[Turn], bool]:
        """The newest turns, oldest first, until they alone fill the budget; and whether there are earlier ones."""
        turns: list[Turn] = []
        before = None
        for _ in range(_MAX_TURNS // _PAGE):
            page = self._timeline.latest(room, _PAGE, before)
            visible = list(filter(allowed, page))
            turns = visible + turns
            if len(page) < _PAGE:
                return turns, False
            budget -= sum(draft.count_tokens(self._turn_text(draft, turn)) for turn in visible)
            if budget < 0:
                break
            before = page[0].seq
        return turns, True

    def _turn_text(self, draft: PromptDraft, turn: Turn) -> str:
        """The text of a turn, after the speaker's name unless that is the character itself."""
        if turn.speaker == draft.character.id:
            return turn_text(turn)
        return f"{self._participants.name(draft.names, turn.speaker)}: {turn_text(turn)}"

    def _summary_part(self, draft: PromptDraft, chat: Chat) -> PromptPart | None:
        """The summaries that replace older dialogue: of scenes as this character saw them, and of the dialogue."""
        summaries = self._chats.scene_summaries(chat.room, draft.character.id)[-_MAX_SCENE_SUMMARIES:]
        dialogue = self._chats.dialogue_summary(chat.room)
        if dialogue is not None and draft.character.id == chat.host:  # only the host witnessed all of it
            summaries.append(dialogue[1])
        if not summaries:
            return None
        text = "What happened before, in short:\n" + "\n".join(summaries)
        return draft.part("summary", "should", text, order=(SYSTEM, 900), drop_order=7)

    def _recall(self, chat: Chat, speaker: str, turns: Sequence[Turn], listeners: set[str]) -> list[RecalledMemory]:
        if not turns or not self._settings.retrieval_k:
            return []
        shown = {turn.id for turn in turns[-_LAST_TURNS * 2 :]}
        memories = self._memory.recall(
            " ".join(turn_text(turn) for turn in turns[-2:]),
            owner=speaker,
            room=chat.room,
            present=listeners,
            people=self._participants.everyone(),
            k=self._settings.retrieval_k + len(shown),
            now=self._clock.now(),
        )
        # Memories of turns that the dialogue shows anyway are left out.
        return [memory for memory in memories if not shown & set(memory.memory.sources)][: self._settings.retrieval_k]


def _person_text(person: OwnerProfile, about_owner: str, *, alone: bool) -> str:
    pronouns = person.pronouns and f" ({join_lines(person.pronouns)})"
    about = (about_owner or person.persona) if alone else person.persona
    which = "the person" if alone else "one of those"
    return f"{join_lines(person.name)}{pronouns} is {which} you are with." + (about and f"\n{about}")


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
    text = ", ".join(part for part in parts if part)
    return join_lines(f"{name}: {text}.") if text else ""
