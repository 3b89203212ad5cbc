"""The position of lore in prompts: decorators of the V3 card specification."""

from __future__ import annotations

from typing import Any

from coterie.characters.cards import Card
from coterie.characters.identity import Identity
from coterie.modes.story.sent_prompts import PromptQueries
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def start_chat_with_lore(harness: StoryHarness, *entries: dict[str, Any], **lorebook: Any) -> str:
    base = Identity(name="Mara", persona="Keeps a lighthouse.").to_card()
    lore = [{"keys": ["lamp"], "enabled": True, "insertion_order": at, **one} for at, one in enumerate(entries)]
    card = Card.read(
        {**base.document, "data": {**base.document["data"], "character_book": {"entries": lore, **lorebook}}}
    )
    character = await harness.characters.save(Identity.from_card(card), card)
    return await harness.start_chat(character)


def messages(script: ScriptedModel) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in script.asked[-1].prompt.messages]


async def test_s9_depth_and_role_put_lore_into_the_dialogue(harness: StoryHarness, script: ScriptedModel) -> None:
    entries = [
        {"content": "@@depth 2\n@@role assistant\nThe oil smells of fish."},
        {"content": "@@depth 1\n@@role user\nThe wind rises."},
        {"content": "@@depth 0\nThe lamp flickers."},
    ]
    room = await start_chat_with_lore(harness, *entries)
    await harness.say(room, "Hello.")
    await harness.say(room, "The lamp?")
    shown = messages(script)[1:]
    assert shown == [
        ("user", "Ana: Hello."),
        ("assistant", "The oil smells of fish.\n\nReply number 1."),
        ("user", "The wind rises.\n\nAna: The lamp?"),
        ("system", "The lamp flickers."),
    ]
    assert not any("@@" in text for _, text in messages(script))
    reply = harness.story.timeline.latest(room, 1)[0].id
    inspected = PromptQueries(harness.store).inspect(room, reply)
    assert sum(part.tokens for part in inspected.parts) == inspected.sent.tokens  # every token belongs to a part


async def test_s9_positions_place_lore_around_the_description(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await start_chat_with_lore(
        harness,
        {"content": "BEFORE.", "position": "before_char"},
        {"content": "AFTER.", "position": "after_char"},
        {"content": "@@position before_desc\nBEFORE TOO."},
        {"content": "@@position personality\nGRUFF."},
        {"content": "@@position scenario\nSTORM."},
    )
    await harness.say(room, "The lamp?")
    system = messages(script)[0][1]
    marks = ["BEFORE.", "BEFORE TOO.", "Keeps a lighthouse.", "AFTER.", "GRUFF.", "at the lighthouse", "STORM."]
    places = [system.index(mark) for mark in marks]
    assert places == sorted(places)


async def test_s9_disable_ui_prompt_omits_our_own_instructions(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await start_chat_with_lore(harness, {"content": "@@disable_ui_prompt system_prompt\nThe lamp is cursed."})
    await harness.say(room, "Hello.")
    assert "You write only what Mara says" in messages(script)[0][1]
    await harness.say(room, "The lamp?")
    assert "You are Mara." in messages(script)[0][1]
    assert "You write only" not in messages(script)[0][1]


async def test_s9_activation_by_reply_count_counts_given_replies(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await start_chat_with_lore(harness, {"content": "@@activate_only_every 2\nThe lamp turns."})
    shown = []
    for _ in range(4):
        await harness.say(room, "The lamp?")
        shown.append("The lamp turns." in messages(script)[0][1])
    assert shown == [True, False, True, False]
