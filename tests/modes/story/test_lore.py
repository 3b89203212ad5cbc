"""The position of lore in prompts: decorators of the V3 card specification."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.characters.cards import Card
from coterie.characters.cards.lorebook_edit import EntryFields
from coterie.characters.identity import Identity
from coterie.eventstore import Store
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


@pytest.mark.parametrize(
    ("entries", "counts"),
    [
        ([], 0),
        ([{"content": "LORE."}], 0),
        ([{"content": "@@activate_only_after 2\nLORE."}], 2),
        ([{"content": "LORE.", "delay": 1}], 2),
    ],
)
async def test_turns_are_counted_only_for_lore_that_depends_on_them(
    harness: StoryHarness, monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, Any]], counts: int
) -> None:
    """Counting goes through all turns of a chat, and most lorebooks do not need it."""
    room = await start_chat_with_lore(harness, *entries)
    counted = []
    query = Store.query

    def noted(store: Store, sql: str, params: Any = ()) -> list[Any]:
        if "count(*)" in sql and "FROM turn " in sql:
            counted.append(sql)
        return query(store, sql, params)

    monkeypatch.setattr(Store, "query", noted)
    for _ in range(2):
        await harness.say(room, "The lamp?")
    assert len(counted) == counts


async def replies_with(harness: StoryHarness, script: ScriptedModel, room: str, *said: str) -> list[bool]:
    shown = []
    for text in said:
        await harness.say(room, text)
        shown.append("LORE." in script.prompt())
    return shown


async def test_s9_books_of_the_character_the_chat_and_everywhere(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, ida = await harness.create_character("Mara"), await harness.create_character("Ida")
    rooms = [await harness.start_chat(mara), await harness.start_chat(mara), await harness.start_chat(ida)]
    entry = EntryFields(keys=["lamp"], content="LORE.")
    book = (await harness.lorebooks.create("Coast")).id
    await harness.lorebooks.save_entry(book, "", entry)

    async def used() -> list[bool]:
        return [(await replies_with(harness, script, room, "The lamp?"))[0] for room in rooms]

    assert await used() == [False, False, False]
    await harness.lorebooks.assign(book, everywhere=False, characters=[mara.id], chats=[])
    assert await used() == [True, True, False]
    await harness.lorebooks.assign(book, everywhere=False, characters=[], chats=[rooms[1]])
    assert await used() == [False, True, False]
    fork = await harness.story.fork(rooms[1], harness.story.timeline.latest(rooms[1], 1)[0].id)
    assert await replies_with(harness, script, fork.room, "The lamp?") == [True]
    await harness.lorebooks.assign(book, everywhere=True, characters=[], chats=[])
    assert await used() == [True, True, True]
    await harness.lorebooks.delete(book)
    assert await used() == [False, False, False]
    await harness.lorebooks.restore(book)
    assert await used() == [True, True, True]


async def test_s9_a_book_in_a_card_is_edited_as_a_new_version(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await start_chat_with_lore(harness, {"content": "LORE.", "id": 1})
    host = harness.story.chats.chat(room).host
    book = f"card:{host}"
    assert [one.id for one in harness.lorebooks.in_cards()] == [book]
    assert await replies_with(harness, script, room, "The lamp?") == [True]
    await harness.lorebooks.save_entry(book, "1", EntryFields(keys=["sea"], content="LORE.", position="after_char"))
    assert harness.characters.get(host).version == 2
    assert await replies_with(harness, script, room, "The lamp?", "The sea?") == [False, True]


async def test_s9_stickiness_and_cooldown_follow_rewinds_and_other_replies(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    extensions = {"sticky": 3, "cooldown": 5}
    room = await start_chat_with_lore(harness, {"content": "LORE.", "extensions": extensions, "id": 4})
    assert await replies_with(harness, script, room, "Hello.", "The lamp?") == [False, True]
    before = harness.story.timeline.latest(room, 1)[0].id
    await harness.regenerate(room)
    assert "LORE." in script.prompt()  # the same message: nothing has passed
    before = harness.story.timeline.latest(room, 1)[0].id
    again = ["Yes.", "No.", "The lamp?", "The lamp!"]
    assert await replies_with(harness, script, room, *again) == [True, False, False, True]
    await harness.story.rewind(room, before)
    assert await replies_with(harness, script, room, "Yes.") == [True]
    fork = await harness.story.fork(room, harness.story.timeline.latest(room, 1)[0].id)
    assert await replies_with(harness, script, fork.room, "The lamp?") == [False]
    first = harness.story.timeline.latest(room, 20)[1].id
    await harness.story.rewind(room, first)
    assert await replies_with(harness, script, room, "Hm.", "The lamp?") == [False, True]


async def test_s9_chance_is_the_same_for_every_reply_to_a_message(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await start_chat_with_lore(harness, {"content": "LORE.", "extensions": {"probability": 50}})
    outcomes = []
    for _ in range(8):
        outcomes += await replies_with(harness, script, room, "The lamp?")
        await harness.regenerate(room)
        assert ("LORE." in script.prompt()) is outcomes[-1]
        reply = harness.story.timeline.latest(room, 1)[0].id
        sent = PromptQueries(harness.store).inspect(room, reply).sent
        assert [one.why for one in sent.lore] == (["“lamp” said, by a chance of 50 %"] if outcomes[-1] else [])
    assert set(outcomes) == {True, False}
