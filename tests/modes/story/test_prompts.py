"""Assembled prompts, for any history of a chat."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.base.ids import new_id
from coterie.characters.cards.card import Card
from coterie.characters.identity import Identity
from coterie.characters.service import OWNER, Character, OwnerProfile
from coterie.conversation.events import AssistantTurn, AssistantTurnStarted, UserTurn
from coterie.eventstore import NewEvent
from coterie.llm.messages import PromptMessage
from coterie.llm.settings import Role
from coterie.memory.writer import NewMemory
from coterie.modes.story.events import DialogueSummarised, SceneSummarised, SentPromptPart
from coterie.modes.story.prompt_budget import PromptTooLong
from coterie.modes.story.prompts import AssembledPrompt, StoryPromptBuilder
from coterie.modes.story.sent_prompts import PromptQueries
from coterie.modes.story.settings import StorySettings
from coterie.modes.story.turn_parser import parse_segments
from tests.modes.story.conftest import ScriptedModel, StoryHarness

NOTE = "xylophone"
"""Occurs only in out-of-character notes."""
BOOK = {
    "entries": [
        {"keys": ["lamp"], "content": "The lamp burns whale oil." * 4, "enabled": True, "insertion_order": 1},
        {"keys": ["sea"], "content": "The sea is cold.", "enabled": True, "insertion_order": 2, "constant": True},
    ]
}
WORDS = st.sampled_from(["the lamp", "a boat", "the sea", "Ana waits", "it rains", "ash and oil", "years ago", "«ja»"])
TEXT = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)


@dataclass(frozen=True)
class Past:
    """A possible history of a chat."""

    turns: list[tuple[str, str]]
    memories: list[str]
    summary: str
    talk: str
    weather: str


PASTS = st.builds(
    Past,
    turns=st.lists(st.tuples(TEXT, TEXT), max_size=24),
    memories=st.lists(TEXT, max_size=12, unique=True),
    summary=st.just("") | TEXT,
    talk=st.just("") | TEXT,
    weather=st.just("") | TEXT,
)
BUDGETS = st.builds(
    lambda soft, more, k: StorySettings(narrative_budget_soft=soft, narrative_budget_hard=soft + more, retrieval_k=k),
    st.integers(256, 3_000),
    st.integers(256, 2_000),
    st.integers(0, 8),
)


@dataclass
class PromptFixture:
    harness: StoryHarness
    loop: asyncio.AbstractEventLoop
    character: Character = field(init=False)

    def prepare(self) -> None:
        self.loop.run_until_complete(self._prepare())

    async def _prepare(self) -> None:
        await self.harness.characters.save_owner(OwnerProfile(name="Ana", persona="A cartographer."))
        data: dict[str, Any] = {"name": "Mara", "description": "Keeps the lamp.", "character_book": BOOK}
        card = Card.read({"spec": "chara_card_v2", "spec_version": "2.0", "data": data})
        self.character = await self.harness.characters.save(Identity.from_card(card), card)

    def assembled(self, past: Past, budgets: StorySettings) -> AssembledPrompt:
        return self.loop.run_until_complete(self._assembled(past, budgets))

    async def _assembled(self, past: Past, budgets: StorySettings) -> AssembledPrompt:
        harness, character = self.harness, self.character.id
        room = await harness.start_chat(self.character, weather=past.weather)
        new_events: list[NewEvent] = []
        for message, reply in past.turns:
            one, two = new_id(), new_id()
            text = f"{message} (({NOTE}))"
            said = UserTurn(
                turn=one, author=OWNER, text=text, segments=tuple(parse_segments(text)), present=(OWNER, character)
            )
            started = AssistantTurnStarted(reply=two, speaker=character, answers=one, present=(OWNER, character))
            new_events += [NewEvent(room, said, OWNER, turn=one), NewEvent(room, started, character, turn=two)]
            new_events.append(NewEvent(room, AssistantTurn(reply=two, text=reply), character, turn=two))
        if past.summary:
            summarised = SceneSummarised(scene="s", owner=character, summary=past.summary, significance=1)
            new_events.append(NewEvent(room, summarised))
        if past.talk:
            new_events.append(NewEvent(room, DialogueSummarised(upto=9, summary=past.talk)))
        new_events.append(
            NewEvent(
                room, UserTurn(turn="now", author=OWNER, text="And now?", segments=tuple(parse_segments("And now?")))
            )
        )
        await harness.store.append(new_events)
        harness.memory.add_many([NewMemory(text, character, room) for text in past.memories])
        args = (harness.store, harness.characters, harness.memory, harness.models)
        builder = StoryPromptBuilder(*args, budgets, harness.clock, harness.story.participants, harness.story.pictures)
        return builder.assemble(harness.story.chats.chat(room), character, "r")


@pytest.fixture(scope="module")
def fixture() -> Iterator[PromptFixture]:
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as folder:
        made = PromptFixture(StoryHarness(Path(folder) / "coterie.db", ManualClock(), ScriptedModel()), loop)
        made.prepare()
        yield made
        loop.run_until_complete(made.harness.close())
    loop.close()


def kinds_gone(assembled: AssembledPrompt) -> list[str]:
    """The kinds of the trimmed parts, in order."""
    lines = [re.sub(r"^\d+ turns ", "turn ", line) for line in assembled.sent.trimmed]
    return [line.split(" ")[0] for line in lines]


@settings(max_examples=40)
@given(past=PASTS, budgets=BUDGETS)
def test_s13_with_any_history_the_budget_holds_must_stays_and_every_part_is_listed(
    fixture: PromptFixture, past: Past, budgets: StorySettings
) -> None:
    try:
        assembled = fixture.assembled(past, budgets)
    except PromptTooLong as error:
        assert str(budgets.narrative_budget_hard) in error.what
        return
    sent, prompt = assembled.sent, assembled.prompt
    # Every token belongs to a part, and the prompt is not longer than counted.
    assert (
        sum(part.tokens for part in assembled.sent.parts) == sent.tokens <= sent.hard <= budgets.narrative_budget_hard
    )
    target = fixture.harness.models.catalogue.chain(Role.NARRATIVE)[0]
    assert fixture.harness.models.tokens.count_prompt(target, prompt) <= sent.tokens
    # The prompt consists of the parts and nothing else.
    assert prompt.messages == as_sent(assembled.sent.parts)
    # MUST parts are complete.
    text_sent = "\n".join(message.text for message in prompt.messages)
    last = [text for pair in past.turns for text in pair][-1:]
    for must in (
        "You are Mara.",
        "Keeps the lamp.",
        "Ana is the person you are with.\nA cartographer.",
        "Ana: And now?",
    ):
        assert must in text_sent
    assert all(text in text_sent for text in last)
    assert {"identity", "you", "scene", "turn now"} <= {
        part.name for part in assembled.sent.parts if part.tier == "must"
    }
    assert NOTE not in text_sent
    # NICE parts are dropped first: older dialogue, then memories beyond two, then the weather.
    gone = kinds_gone(assembled)
    stages = {"turn": 0, "memory": 1, "weather": 2}
    tiers = {part.name: part.tier for part in assembled.sent.parts}
    nice = [stages[kind] for kind in gone if kind in stages and kind != "memory"]
    assert nice == sorted(nice)
    others = [kind for kind in gone if kind not in stages]
    if others:
        assert "nice" not in tiers.values()
        assert gone.index(others[0]) >= len(nice)
    if "memory" in gone:  # memories are dropped only when no older dialogue is left
        assert not [name for name, tier in tiers.items() if tier == "nice" and name.startswith("turn ")]
    if "turn" in gone and (past.summary or past.talk):
        assert "summary" in tiers or "summary" in gone
    # The soft budget holds, unless the MUST parts alone exceed it: then SHOULD parts may use up to the hard one.
    needed = sum(part.tokens for part in assembled.sent.parts if part.tier == "must")
    if needed <= sent.soft or "should" not in tiers.values():
        assert sent.tokens <= max(sent.soft, needed)


def as_sent(parts: Sequence[SentPromptPart]) -> tuple[PromptMessage, ...]:
    """The messages of these parts: the system message, then turns, with those of one role joined."""
    aside = [part.text for part in parts if not part.name.startswith("turn ")]
    messages = [PromptMessage(role="system", text="\n\n".join(aside))]
    for part in parts:
        if not part.name.startswith("turn "):
            continue
        if messages[-1].role == part.role:
            messages[-1] = PromptMessage(role=part.role, text=f"{messages[-1].text}\n\n{part.text}")
        else:
            messages.append(PromptMessage(role=part.role, text=part.text))
    return tuple(messages)


async def test_s13_recalled_memories_drop_from_four_to_two_before_should_parts(harness: StoryHarness) -> None:
    harness.settings = StorySettings(narrative_budget_soft=256, narrative_budget_hard=2_000)
    harness.store.close()
    harness.open()
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    ships = [f"the lamp and number {n} of the {'many ' * 40}ships that passed by night" for n in range(8)]
    harness.memory.add_many([NewMemory(text, mara.id, room) for text in ships])
    begun = await harness.say(room, "How many ships passed the lamp?")
    inspected = PromptQueries(harness.store).inspect(room, begun.reply)
    sent = inspected.sent
    ranked = [f"memory {memory}" for memory in sent.recalled]
    gone = [line.partition(" (")[0] for line in sent.trimmed]
    assert len(ranked) == 4
    assert gone[:2] == [ranked[3], ranked[2]]
    assert {part.tier for part in inspected.parts if part.name.startswith("memory ")} <= {"should"}


async def test_s13_a_message_that_cannot_fit_is_named_in_the_error(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    harness.settings = StorySettings(narrative_budget_hard=600, narrative_budget_soft=400)
    harness.store.close()
    harness.open()
    room = await harness.start_chat(await harness.create_character())
    with pytest.raises(PromptTooLong, match=r"your message \(\d+ tokens\)") as error:
        await harness.say(room, "word " * 900)
    assert "Shorten" in error.value.fix
    assert script.asked == []
    assert harness.texts(room) == []
    await harness.say(room, "A short word.")
    with pytest.raises(PromptTooLong, match="your message"):
        await harness.regenerate(room, text="word " * 900)
    assert harness.texts(room) == ["A short word.", "Reply number 1."]


async def test_s13_budgets_follow_the_context_of_the_model(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    embedded = harness.models.catalogue.settings.embedded.model_copy(update={"context": 1_024})
    harness.models.catalogue.settings = harness.models.catalogue.settings.model_copy(update={"embedded": embedded})
    for number in range(30):
        await harness.story.send_message(room, f"Message {number}: {'the sea is cold and wide ' * 6}")
        await harness.story.replies.wait(room)
    begun = await harness.say(room, "And now?")
    sent = PromptQueries(harness.store).inspect(room, begun.reply).sent
    assert sent.hard == 1_024 - 256 - 64
    assert sent.tokens <= sent.hard
    assert any(re.match(r"\d+ turns \(\d+ tokens\): over the budget of ", line) for line in sent.trimmed)


async def test_s13_the_inspector_shows_exactly_what_was_sent_for_any_turn_that_counts(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    harness.settings = StorySettings(narrative_budget_hard=900, narrative_budget_soft=500)
    harness.store.close()
    harness.open()
    room = await harness.start_chat(await harness.create_character(), greeting="You came.")
    sent: dict[str, int] = {}
    for number in range(12):
        begun = await harness.say(room, f"Number {number} of the lamp, the sea and the boats. ((xylophone))")
        sent[begun.reply] = len(script.asked) - 1
        if number % 3 == 0:
            first = begun.reply
            sent[(await harness.regenerate(room)).reply] = len(script.asked) - 1
            await harness.story.choose(room, first)
    fork = await harness.story.fork(room, harness.story.timeline.latest(room, 5)[0].id)
    for where in (room, fork.room):
        replies = [turn for turn in harness.story.timeline.latest(where, 100) if turn.answers]
        assert len(replies) > 8
        for turn in replies:
            inspected = PromptQueries(harness.store).inspect(where, turn.id)
            assert as_sent(inspected.parts) == script.asked[sent[turn.id]].prompt.messages
            assert all(part.text for part in inspected.parts)
            assert sum(part.tokens for part in inspected.parts) == inspected.sent.tokens


async def test_s16_a_memory_of_a_turn_that_the_dialogue_shows_is_not_repeated(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    await harness.say(room, "The lamp burns whale oil.")
    for number in range(12):  # further back than the last turns, and still in the prompt
        await harness.say(room, f"A remark of no weight, number {number}.")
    begun = await harness.say(room, "What does the lamp burn?")
    parts = PromptQueries(harness.store).inspect(room, begun.reply).parts
    assert [part.name.split()[0] for part in parts if "whale oil" in part.text] == ["turn"]
    assert script.prompt().count("whale oil") == 1
