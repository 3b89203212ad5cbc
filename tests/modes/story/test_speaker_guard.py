"""A reply contains only the text of its speaker."""

from __future__ import annotations

import pytest

from coterie.conversation.replies import LiveText
from coterie.eventstore import WhenSlow
from coterie.llm.messages import Finished, TextDelta, Tokens
from coterie.llm.recording import RecordedCall
from coterie.llm.settings import ModelDetails
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def pieces(text: str, size: int) -> RecordedCall:
    """The text in chunks of a given length, as a provider streams it."""
    said = [TextDelta(text=text[at : at + size]) for at in range(0, len(text), size)]
    end = Finished(reason="stop", tokens=Tokens(input=1, output=len(said)), model="script")
    return RecordedCall(chunks=tuple((0, chunk) for chunk in (*said, end)))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 80])
async def test_s12_text_for_other_speakers_is_neither_shown_nor_stored(
    harness: StoryHarness, script: ScriptedModel, size: int
) -> None:
    character = await harness.create_character()
    room = await harness.start_chat(character)
    script.faults = [pieces("Mara: Sit down.\nThe kettle sings.\n\n**Ana:** Thank you!\nMara: You're welcome.", size)]
    async with harness.store.bus.subscribe("live.>", limit=1_000, when_slow=WhenSlow.DROP_OLDEST) as words:
        begun = await harness.say(room, "Good evening.")
        turn = harness.story.timeline.turn(room, begun.reply)
        assert (turn.text, turn.state, turn.why) == ("Sit down.\nThe kettle sings.", "done", "")
        shown = ""
        while len(shown) < len(turn.text):
            live = (await anext(words)).body
            assert isinstance(live, LiveText)
            assert live.offset == len(shown)
            shown += live.text
    assert shown == turn.text
    assert not any("Thank you" in text for text in harness.memories_of(character.id))
    logged = "".join(str(event.payload) for event in harness.store.reader.read(room))
    assert "Thank you" not in logged


async def test_s13_prompts_have_stop_sequences_for_other_speakers(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    guest = await harness.create_character("Io")
    await harness.story.invite(room, guest.id)
    await harness.say(room, "Mara?")
    assert script.asked[-1].prompt.stop == ("\nAna:", "\nIo:")
    await harness.say(room, "Io?")
    assert script.asked[-1].prompt.stop == ("\nAna:", "\nMara:")


async def test_s12_a_wrong_speaker_label_at_the_start_does_not_end_the_reply(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room = await harness.start_chat(await harness.create_character())
    script.replies = ["You: Hello there!\nYou: And who are you?"]
    begun = await harness.say(room, "Good evening.")
    turn = harness.story.timeline.turn(room, begun.reply)
    assert (turn.text, turn.state) == ("Hello there!", "done")


async def test_s12_a_reply_over_the_length_limit_ends_with_a_sentence_and_is_complete(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    catalogue = harness.models.catalogue
    details = {"embedded/script": ModelDetails(max_story_words=4)}
    catalogue.settings = catalogue.settings.model_copy(update={"details": details})
    room = await harness.start_chat(await harness.create_character())
    script.faults = [pieces("Sit down. The kettle sings. And so on, and on, and on.", 3)]
    begun = await harness.say(room, "Good evening.")
    turn = harness.story.timeline.turn(room, begun.reply)
    assert (turn.text, turn.state, turn.why) == ("Sit down. The kettle sings.", "done", "")
    assert turn.model == "embedded/script", "known though it was left early"
