"""Sampler presets, values and notes per chat and per character: in the request, the prompt and its record."""

from __future__ import annotations

import pytest

from coterie.base.errors import ConfigError
from coterie.characters import Card
from coterie.modes.story.chat_model.choices import AuthorNote, ModelChoice, card_note
from coterie.modes.story.sent_prompts import PromptQueries
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_l4_the_chat_goes_before_the_character(harness: StoryHarness, script: ScriptedModel) -> None:
    character = await harness.create_character()
    room, other = [await harness.start_chat(character) for _ in range(2)]
    choices = harness.story.choices
    await harness.say(room, "Hello.")
    assert script.asked[-1].prompt.temperature == 0.9
    await choices.set_for_character(character.id, ModelChoice(preset="precise", values={"max_tokens": 77}))
    await choices.set_for_chat(room, ModelChoice(preset="creative", values={"min_p": 0.2, "stop": ["The end"]}))
    begun = await harness.say(room, "And now?")
    prompt = script.asked[-1].prompt
    assert (prompt.temperature, prompt.top_p, prompt.max_tokens) == (1.1, 0.95, 77)
    assert (prompt.extra_body["min_p"], prompt.stop[0]) == (0.2, "The end")
    sent = PromptQueries(harness.store).inspect(room, begun.reply).sent
    assert (sent.sampler["temperature"], sent.sampler["min_p"], sent.sampler["max_tokens"]) == (1.1, 0.2, 77)
    await harness.say(other, "And here?")
    assert (script.asked[-1].prompt.temperature, script.asked[-1].prompt.max_tokens) == (0.2, 77)


async def test_l4_notes_stand_at_their_depth_and_in_the_record(harness: StoryHarness, script: ScriptedModel) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    for number in range(3):
        await harness.say(room, f"Message {number}.")
    note = AuthorNote(text="{{char}} is in a hurry.", depth=2, role="user")
    await harness.story.choices.set_for_chat(room, ModelChoice(note=note))
    await harness.story.choices.set_for_character(character.id, ModelChoice(note=AuthorNote(text="Short.", depth=0)))
    begun = await harness.say(room, "Message 3.")
    names = [part.name.split()[0] for part in PromptQueries(harness.store).inspect(room, begun.reply).parts]
    assert names[-5:] == ["turn", "author's", "turn", "turn", "character's"]
    assert "Mara is in a hurry." in script.prompt()
    assert script.asked[-1].prompt.messages[-1].text == "Short."


async def test_l4_a_rewind_and_a_fork_have_the_choice_of_their_point(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character())
    choices = harness.story.choices
    first = await harness.say(room, "One.")
    await choices.set_for_chat(room, ModelChoice(preset="creative"))
    second = await harness.say(room, "Two.")
    await choices.set_for_chat(room, ModelChoice(preset="precise"))
    fork = await harness.story.fork(room, second.turn)
    assert choices.for_chat(fork.room).preset == "creative"
    await choices.set_for_chat(fork.room, ModelChoice())
    await harness.story.rewind(room, first.turn)
    assert choices.for_chat(room).preset == ""
    await harness.story.undo_rewind(room)
    assert choices.for_chat(room).preset == "precise"


async def test_l4_values_out_of_range_are_refused(harness: StoryHarness) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    for values in ({"temperature": 99}, {"top_p": "high"}, {"unknown": 1}):
        with pytest.raises(ConfigError, match="values"):
            await harness.story.choices.set_for_chat(room, ModelChoice(values=values))
    assert harness.store.query("SELECT count(*) FROM chat_model")[0][0] == 0


def test_l4_the_note_of_a_card_is_the_first_note_of_its_character() -> None:
    def card(**note: object) -> Card:
        data = {"name": "Nils", "extensions": {"depth_prompt": note}}
        return Card.read({"spec": "chara_card_v2", "spec_version": "2.0", "data": data})

    assert card_note(card(prompt="Be brief.", depth=2, role="user")) == AuthorNote(
        text="Be brief.", depth=2, role="user"
    )
    assert card_note(card(prompt=7, depth="x", role="king")) == AuthorNote()
    assert card_note(card(prompt="x", depth=-5)) == AuthorNote()
    assert card_note(None) == AuthorNote()
