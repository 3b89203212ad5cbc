"""Builds the prompt of a reply from named parts, and fits them into the model's token budget.

Parts have a tier: MUST (identity, people, scene, last turns), SHOULD (relationships, activities, pinned and recalled
memories, lore) and NICE (older dialogue, more memories, weather). A prompt contains only what its speaker may know: no
turns it did not witness, no whispers to others, no out-of-character notes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from coterie.base.clock import Clock
from coterie.base.untrusted import join_lines
from coterie.characters import (
    OWNER,
    Character,
    Characters,
    Identity,
    LorebookQueries,
    Macros,
    OwnerProfile,
    PromptTexts,
    Workspaces,
    WorkspaceTexts,
    declare_prompt,
)
from coterie.conversation import LengthLimit, SpeakerGuard, Turn, TurnQueries
from coterie.eventstore import Store
from coterie.llm import IMAGE_TOKENS, ModelDetails, Models, Prompt, PromptMessage, Role, Sampler, Script
from coterie.memory import Memory, MemoryRecord, RecalledMemory
from coterie.modes.story.chat_model.choices import ModelChoices
from coterie.modes.story.edits import without_evidence
from coterie.modes.story.events import Activity, PromptSent, SentPromptPart, Tier
from coterie.modes.story.pictures import MessagePictures
from coterie.modes.story.prompt_budget import (
    DIALOGUE,
    SYSTEM,
    MessageRole,
    PromptDraft,
    PromptPart,
    fit_to_budget,
    is_repeated,
    merge_turns,
    without_repeated,
)
from coterie.modes.story.prompt_lore import ActiveLore, seq_at_depth
from coterie.modes.story.queries import Chat, ChatQueries, Participants, RelationshipQueries
from coterie.modes.story.script_prompts import SpokenTurn, build_script
from coterie.modes.story.sent_prompts import PromptQueries
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import turn_text

_STORY = declare_prompt(
    "story",
    "Story reply",
    "What a character is told to write in a story.",
    "You write only what {name} says and does, in prose, never what {people} does.",
)
_CONTINUE = declare_prompt(
    "story-continue",
    "Story: continue a reply",
    "What a character is told when its last reply is to go on.",
    "Go on with {name}'s last message exactly where it ends. Repeat nothing of it.",
)
_GREETING = declare_prompt(
    "story-greeting",
    "Story: another greeting",
    "What a character is told to write at the beginning of a story.",
    "The story begins now. Write what {name} does and says first.",
)
_SUGGESTION = declare_prompt(
    "story-suggestion",
    "Story: message for you",
    "What the model is told when it writes your next message.",
    "You write the next message of {person} in this story, in {person}'s own way and from {person}'s view, at most a "
    "few sentences. Never write what {others} say or do.",
)

_AFTER_TURNS = 2.0**62
"""The position of what follows the last turn."""
_LAST_TURNS, _MIN_LAST_TURNS = 6, 2
"""How many of the newest turns are always included; fewer if they would take more than half of a small context."""
_MAX_TURNS, _PAGE = 200, 50
_DIALOGUE_SHARE = 0.6
"""The share of the soft budget that the dialogue of a long chat takes, at most; the rest is for other parts."""
_MAX_REPEATED = 100
"""How many recalled memories may be left out because their turns are in the prompt."""
_SHOULD_RECALLED = 2
_MAX_RECALLED = 100
_MAX_PINNED = 8
_MAX_FACTS = 12
_MAX_SCENE_SUMMARIES = 5
_GENERIC_NAMES = ("You", "User")
"""What models call the person, besides their name."""
_MAX_STOPS = 4
"""The number of stop sequences that providers accept."""
_DEFAULT_TEMPERATURE = 0.9
_OVERHEAD_TOKENS = 6
"""Tokens for the markup around a message or between two parts."""


@dataclass(frozen=True)
class AssembledPrompt:
    prompt: Prompt
    sent: PromptSent
    recalled: list[RecalledMemory]
    first_turn_seq: int | None
    """The seq of the first turn in the dialogue, if earlier ones were left out."""
    speaker_guard: SpeakerGuard
    """Ends the reply where it begins to speak for others."""
    sampler: Sampler
    """How the model picks its words, as far as the chat or the character sets it."""


@dataclass(frozen=True)
class SuggestionPrompt:
    """The prompt for a person's next message."""

    prompt: Prompt
    speaker_guard: SpeakerGuard


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
        pictures: MessagePictures,
        workspaces: Workspaces | None = None,
    ) -> None:
        self._store = store
        self._participants = participants
        self._pictures = pictures
        self.workspaces = workspaces
        self._characters = characters
        self._memory = memory
        self._models = models
        self._settings = settings
        self._clock = clock
        self._timeline = TurnQueries(store)
        self._chats = ChatQueries(store)
        self._relationships = RelationshipQueries(store)
        self._lorebooks = LorebookQueries(store)
        self.sent_prompts = PromptQueries(store)
        self.choices = ModelChoices(store, characters)

    def assemble(
        self, chat: Chat, speaker: str, reply: str, to: Sequence[str] = (), *, beginning: str = ""
    ) -> AssembledPrompt:
        """The prompt of a speaker's next reply. `to` are the listeners of a whisper, if it is one.

        `beginning` is what the reply has of its text already, if it goes on with it.
        """
        character = self._characters.get(speaker, chat.version_of(speaker))
        names = self._participants.names(chat)
        seen = self._participants.turns_seen_by(chat, speaker)
        chosen = self.choices.sampler(self._models.catalogue, chat.room, speaker)
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        sampler = self._models.catalogue.sampler(target, chosen)
        soft, hard = self._budgets(sampler.max_tokens)
        draft = self._draft(chat, character, names)
        listeners = {self._last_person(chat), *to} if to else set(chat.participants)

        def allowed(turn: Turn) -> bool:
            complete = (turn.text or turn.state != "open") and not turn.hidden
            return bool(complete and seen(turn) and (not turn.to or listeners <= {turn.speaker, *turn.to}))

        turns, more = self._last_turns(draft, chat.room, allowed, soft)
        recalled = self._recall(chat, speaker, turns, listeners)
        turns = [turn for turn in turns if turn_text(turn)]
        script = self._script(draft, chat, turns, recalled, beginning)
        lore = ActiveLore()
        if script is not None and self._details().prompt_form == "script":
            _add_script(draft, script, turns)
        else:
            lore = self._active_lore(draft, chat, turns)
            self._add_identity(draft, chat, lore)
            if draft.character.card is not None:
                draft.add("scenario", "should", draft.character.card.data.scenario, drop_order=11)
            self._add_scene(draft, chat)
            lore.add_to(draft, "scenario")
            self._add_relationships(draft, chat)
            self._add_memories(draft, chat, recalled, listeners)
            lore.add_to_dialogue(draft, turns)
            self._add_notes(draft, chat, turns)
            self._add_dialogue(draft, chat, turns, hard, more=more)
            self._add_ending(draft, chat, beginning, greets=not turns)
        fitted = without_repeated(fit_to_budget(draft.parts, soft=soft, hard=hard), recalled)
        parts = tuple(
            SentPromptPart(name=p.name, tier=p.tier, role=p.role, tokens=p.tokens, text=p.text) for p in fitted.parts
        )
        sent = PromptSent(
            reply=reply,
            model=str(target),
            tokens=fitted.tokens,
            soft=soft,
            hard=hard,
            parts=parts,
            trimmed=tuple(merge_turns(fitted.trimmed)),
            recalled={m.id: {name: round(score, 4) for name, score in m.parts.items()} for m in recalled},
            lore=lore.used({part.name for part in fitted.parts}),
            sampler=sampler.chosen(),
        )
        used = {part.name for part in fitted.parts}
        kept = [memory for memory in recalled if f"memory {memory.id}" in used]
        seqs = [int(part.order[1]) for part in fitted.parts if part.name.startswith("turn ")]
        shortened = more or any(line.startswith("turn ") for line in fitted.trimmed)
        others = [name for entity, name in names.items() if entity != speaker]
        return AssembledPrompt(
            self.to_prompt(fitted.parts, others, sampler).model_copy(update={"script": script}),
            sent,
            kept,
            min(seqs) if seqs and shortened else None,
            SpeakerGuard([character.name, draft.macros.char], [*others, *_GENERIC_NAMES], self._length_limit()),
            chosen,
        )

    def assemble_suggestion(self, chat: Chat, person: str, beginning: str = "") -> SuggestionPrompt:
        """The prompt for a person's next message. It contains what that person has witnessed, and no memories."""
        profile = self._participants.profile(chat, person)
        names = self._participants.names(chat)
        name = names.get(person, join_lines(profile.name))
        identity = Identity(id=person, name=name, persona=profile.persona)
        draft = PromptDraft(
            self._token_counter(),
            names,
            Character(identity, 0, None),
            Macros(char=names[chat.host], user=name, rng=random.Random(chat.room), seed=chat.room),  # noqa: S311
            partial(self._participants.turn_name, chat, names),
        )
        soft, hard = self._budgets()
        seen = self._participants.turns_seen_by(chat, person)
        turns, _ = self._last_turns(draft, chat.room, lambda turn: seen(turn) and not turn.hidden, soft)
        turns = [turn for turn in turns if turn_text(turn)]
        others = [other for entity, other in names.items() if entity != person]
        texts = self.workspaces.prompts(chat.host) if self.workspaces is not None else PromptTexts()
        draft.add("instructions", "must", texts.text(_SUGGESTION, person=name, others=" and ".join(others)))
        about = f"{name} ({profile.pronouns})" if profile.pronouns else name
        draft.add("you", "must", f"{about}: {profile.persona}" if profile.persona else "", label="who you are")
        self._add_scene(draft, chat)
        self._add_dialogue(draft, chat, turns, hard, more=False)
        if not turns or turns[-1].speaker == person or beginning:
            self._add_beginning(draft, beginning, f"What does {name} say or do next?")
        fitted = fit_to_budget(draft.parts, soft=soft, hard=hard)
        prompt = self.to_prompt(fitted.parts, others)
        spoken = [
            SpokenTurn(turn.id, self._participants.name(names, turn.speaker), turn_text(turn), turn.speaker != person)
            for turn in turns
        ]
        samples = [turn.text for turn in spoken if not turn.by_person][-3:]
        identity = identity.model_copy(update={"voice_samples": samples})
        script = build_script(identity, names[chat.host], others, spoken) if self._asks_with_script() else None
        guard = SpeakerGuard([name], others, self._length_limit())
        return SuggestionPrompt(prompt.model_copy(update={"script": script}), guard)

    def check_fits(self, chat: Chat, speakers: Iterable[str], text: str, last: Sequence[Turn] = ()) -> None:
        """Raise `PromptTooLong` if a message does not fit into a prompt of these speakers, before it is stored.

        `last` are the turns that a prompt has to contain besides the message.
        """
        _, hard = self._budgets()
        names = self._participants.names(chat)
        for speaker in speakers:
            character = self._characters.get(speaker, chat.version_of(speaker))
            draft = self._draft(chat, character, names)
            self._add_identity(draft, chat, ActiveLore())
            self._add_scene(draft, chat)
            self._add_notes(draft, chat, last)
            labelled = [("the last turn", self._turn_text(draft, turn)) for turn in last]
            for label, required in [*labelled, ("your message", text)]:
                draft.append(draft.part(label, "must", required, label=label))
            fit_to_budget([part for part in draft.parts if part.tier == "must"], soft=hard, hard=hard)

    def to_prompt(
        self, parts: Sequence[PromptPart], others: Sequence[str] = (), sampler: Sampler | None = None
    ) -> Prompt:
        """`sampler` has the values that apply to the model; the router adds them."""
        system = "\n\n".join(part.text for part in parts if part.order[0] == SYSTEM)
        messages = [PromptMessage(role="system", text=system)]
        for part in parts:
            if part.order[0] == SYSTEM:
                continue
            images = self._pictures.images(part.pictures)
            if messages[-1].role == part.role:  # providers require alternating roles
                joined = f"{messages[-1].text}\n\n{part.text}"
                images = (*messages[-1].images, *images)
                messages[-1] = PromptMessage(role=part.role, text=joined, images=images)
            else:
                messages.append(PromptMessage(role=part.role, text=part.text, images=images))
        # Ends a reply that begins to speak for others, if the provider supports it.
        stop = tuple(f"\n{name}:" for name in others[:_MAX_STOPS])
        sampler = sampler or Sampler()
        return Prompt(
            messages=tuple(messages),
            max_tokens=sampler.max_tokens or self._settings.reply_tokens,
            temperature=_DEFAULT_TEMPERATURE if sampler.temperature is None else sampler.temperature,
            stop=tuple(dict.fromkeys((*sampler.stop, *stop)))[: max(_MAX_STOPS, len(sampler.stop))],
        )

    def _draft(self, chat: Chat, character: Character, names: dict[str, str]) -> PromptDraft:
        speaker_name = partial(self._participants.turn_name, chat, names)
        macros = self._macros(chat, character, names)
        return PromptDraft(self._token_counter(), names, character, macros, speaker_name)

    def _active_lore(self, draft: PromptDraft, chat: Chat, turns: Sequence[Turn]) -> ActiveLore:
        character = draft.character.id
        rooms, origin = [chat.room], self._store.reader.fork_origin(chat.room)
        while origin is not None:
            rooms.append(origin[0])
            origin = self._store.reader.fork_origin(origin[0])
        # The newest version: a person who edits a lorebook expects it to be used at once.
        books = self._lorebooks.used_in(rooms, character, self._characters.get(character).card)
        if not books:
            return ActiveLore()
        before = self.sent_prompts.lore_matches(chat.room)
        return ActiveLore.find(draft, turns, books, chat.room, self._timeline, before)

    def _last_person(self, chat: Chat) -> str:
        """The person who wrote last: the reply to a whisper is for them."""
        latest = self._timeline.latest(chat.room, _LAST_TURNS)
        return next((turn.speaker for turn in reversed(latest) if turn.by_person), chat.person)

    def _budgets(self, reply_tokens: int | None = None) -> tuple[int, int]:
        """The soft and the hard budget in tokens, limited by the model's context if that is known."""
        context = self._details().context
        hard = self._settings.narrative_budget_hard
        if context is not None:
            hard = min(hard, context - min(reply_tokens or self._settings.reply_tokens, context // 4) - 64)
        return min(self._settings.narrative_budget_soft, hard * 3 // 4), hard

    def _length_limit(self) -> LengthLimit:
        return LengthLimit(self._details().max_story_words)

    def _details(self) -> ModelDetails:
        return self._models.catalogue.details(self._models.catalogue.chain(Role.NARRATIVE)[0])

    def _asks_with_script(self) -> bool:
        """Whether a model of the chain is asked with a script."""
        return self._models.catalogue.asks_with_script(Role.NARRATIVE)

    def _script(
        self,
        draft: PromptDraft,
        chat: Chat,
        turns: Sequence[Turn],
        recalled: Sequence[RecalledMemory],
        beginning: str,
    ) -> Script | None:
        """The dialogue as a script, if a model of the chain is asked with one."""
        if not self._asks_with_script():
            return None
        place = ""
        if chat.scene is not None and (container := self._chats.scene(chat.room, chat.scene).container):
            place = self._chats.container_name(chat.room, container)
        spoken_turns = [
            SpokenTurn(turn.id, draft.speaker_name(turn), turn_text(turn), turn.by_person) for turn in turns
        ]
        if beginning:
            name = draft.names[draft.character.id]
            spoken_turns.append(SpokenTurn("", name, beginning, False))
        return build_script(
            draft.character.identity,
            draft.names[self._last_person(chat)],
            [name for entity, name in draft.names.items() if entity != draft.character.id],
            spoken_turns,
            place=place,
            memories=[memory.text for memory in recalled],
            expand=draft.macros.expand,
        )

    def _token_counter(self) -> Callable[[str], int]:
        target = self._models.catalogue.chain(Role.NARRATIVE)[0]
        count = self._models.tokens.counter(target)
        return lambda text: count(text) + _OVERHEAD_TOKENS

    def _macros(self, chat: Chat, character: Character, names: dict[str, str]) -> Macros:
        char = (character.card.data.nickname if character.card else "") or character.name
        return Macros(char=char, user=names[chat.person], rng=random.Random(chat.room), seed=chat.room)  # noqa: S311

    def _add_identity(self, draft: PromptDraft, chat: Chat, lore: ActiveLore) -> None:
        identity, people = (
            draft.character.identity,
            [self._participants.profile(chat, person) for person in chat.people],
        )
        files = self.workspaces.texts(identity.id) if self.workspaces is not None else WorkspaceTexts()
        about_owner = files.user if OWNER in chat.people and not chat.persona else ""
        card = draft.character.card.data if draft.character.card else None
        name = join_lines(identity.name)
        names = " or ".join(join_lines(person.name) for person in people)
        texts = self.workspaces.prompts(identity.id) if self.workspaces is not None else PromptTexts()
        only = f" {texts.text(_STORY, name=name, people=names)}"
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

    def _add_notes(self, draft: PromptDraft, chat: Chat, turns: Sequence[Turn]) -> None:
        """Add the notes of the chat and the character, a number of messages before the newest one."""
        for name, note in self.choices.notes(chat.room, draft.character.id):
            order = (DIALOGUE, seq_at_depth(turns, note.depth))
            text = draft.macros.expand(note.text)
            draft.append(draft.part(name, "must", text, role=note.role, order=order, label=f"the {name}"))

    def _add_dialogue(self, draft: PromptDraft, chat: Chat, turns: Sequence[Turn], hard: int, *, more: bool) -> None:
        """Add the turns. `more` means that there are earlier ones, which the summary replaces."""
        summary = self._summary_part(draft, chat)
        if summary is not None and more:
            draft.append(summary)
        left = hard // 2
        shown = self._shown_pictures(turns, hard)
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
                    pictures=shown.get(turn.id, ()) if always else (),
                )
            )

    def _shown_pictures(self, turns: Sequence[Turn], hard: int) -> dict[str, tuple[str, ...]]:
        """The newest pictures of the last turns by turn, if the model can see; at most a quarter of the budget."""
        left = hard // 4 // IMAGE_TOKENS if self._pictures.model_sees() else 0
        shown: dict[str, tuple[str, ...]] = {}
        for turn in reversed(turns[-_LAST_TURNS:]):
            if chosen := tuple(picture.id for picture in turn.pictures)[:left]:
                shown[turn.id] = chosen
                left -= len(chosen)
        return shown

    def _add_ending(self, draft: PromptDraft, chat: Chat, beginning: str, *, greets: bool) -> None:
        """What follows the last turn: the card's instructions, and what is asked for if it is no ordinary reply."""
        card = draft.character.card.data if draft.character.card else None
        if card and (instructions := draft.macros.expand(card.post_history_instructions)).strip():
            order = (DIALOGUE, _AFTER_TURNS)
            label = "the card's instructions"
            draft.append(draft.part("instructions", "must", instructions, order=order, label=label))
        texts = self.workspaces.prompts(draft.character.id) if self.workspaces is not None else PromptTexts()
        name = draft.names[draft.character.id]
        if beginning:
            self._add_beginning(draft, beginning, texts.text(_CONTINUE, name=name))
        elif greets:
            kickoff = draft.macros.expand(draft.character.identity.kickoff)
            asked = texts.text(_GREETING, name=name) + (f"\n\n{kickoff}" if kickoff.strip() else "")
            draft.append(draft.part("beginning", "must", asked, role="user", order=(DIALOGUE, _AFTER_TURNS * 4)))

    def _add_beginning(self, draft: PromptDraft, beginning: str, asked: str) -> None:
        """The text that is to go on, as the character's own, and the request to do so."""
        if beginning:
            order = (DIALOGUE, _AFTER_TURNS * 2)
            draft.append(draft.part("text so far", "must", beginning, role="assistant", order=order))
        draft.append(draft.part("continue", "must", asked, role="user", order=(DIALOGUE, _AFTER_TURNS * 4)))

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
        return f"{draft.speaker_name(turn)}: {turn_text(turn)}"

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

    def _likely_shown(self, turns: Sequence[Turn]) -> set[str]:
        """The turns that the dialogue of the prompt shows, as far as its budget tells before it is fitted."""
        count, (soft, _) = self._token_counter(), self._budgets()
        left = soft * _DIALOGUE_SHARE
        shown: set[str] = set()
        for number, turn in enumerate(reversed(turns)):
            left -= count(turn_text(turn))
            if number >= _LAST_TURNS and left < 0:
                break
            shown.add(turn.id)
        return shown

    def _recall(self, chat: Chat, speaker: str, turns: Sequence[Turn], listeners: set[str]) -> list[RecalledMemory]:
        if not turns or not self._settings.retrieval_k:
            return []
        shown = self._likely_shown(turns)
        said = {turn.id: turn_text(turn).casefold() for turn in turns if turn.id in shown}

        def choose(memories: Sequence[MemoryRecord]) -> Sequence[MemoryRecord]:
            # Memories of turns that the dialogue shows anyway are left out, and the words of turns that statements
            # repeat.
            new = [memory for memory in memories if not is_repeated(memory, said)]
            return without_evidence(new)[: self._settings.retrieval_k]

        return self._memory.recall(
            " ".join(turn_text(turn) for turn in turns[-2:]),
            owner=speaker,
            room=chat.room,
            present=listeners,
            people=self._participants.everyone(),
            k=self._settings.retrieval_k + min(len(shown), _MAX_REPEATED),
            choose=choose,
            now=self._clock.now(),
        )


def _add_script(draft: PromptDraft, script: Script, turns: Sequence[Turn]) -> None:
    """The parts of a prompt that is a script: what the model reads, in its order."""
    draft.append(draft.part("preface", "must", script.preface))
    for number, lines in enumerate(script.examples):
        text = "\n".join(f"{line.speaker}: {line.text}" for line in lines)
        draft.append(draft.part(f"voice {number + 1}", "must", text))
    for line, turn in zip(reversed(script.lines), reversed(turns), strict=False):
        role: MessageRole = "assistant" if turn.speaker == draft.character.id else "user"
        text = f"{line.speaker}: {line.text}"
        draft.append(draft.part(f"turn {turn.id}", "must", text, role=role, order=(DIALOGUE, turn.seq)))


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
