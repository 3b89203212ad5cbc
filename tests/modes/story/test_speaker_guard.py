"""A character speaks for itself only, whatever its model goes on to write. S12, S13"""

from __future__ import annotations

import pytest

from coterie.conversation.replies import LiveText
from coterie.eventstore import WhenSlow
from coterie.llm.messages import Finished, TextDelta, Tokens
from coterie.llm.recording import RecordedCall
from coterie.llm.settings import ModelDetails
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def pieces(text: str, size: int) -> RecordedCall:
    """The text in pieces of so many letters, as tokens cut it."""
    said = [TextDelta(text=text[at : at + size]) for at in range(0, len(text), size)]
    end = Finished(reason="stop", tokens=Tokens(input=1, output=len(said)), model="script")
    return RecordedCall(chunks=tuple((0, chunk) for chunk in (*said, end)))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 80])
async def test_s12_what_it_says_for_others_is_neither_shown_nor_kept(
    stage: StoryHarness, script: ScriptedModel, size: int
) -> None:
    bot = await stage.create_character()
    room = await stage.start_chat(bot)
    script.faults = [pieces("Mara: Sit down.\nThe kettle sings.\n\n**Ana:** Thank you!\nMara: You're welcome.", size)]
    async with stage.store.bus.subscribe("live.>", limit=1_000, when_slow=WhenSlow.DROP_OLDEST) as words:
        begun = await stage.say(room, "Good evening.")
        turn = stage.story.timeline.turn(room, begun.reply)
        assert (turn.text, turn.state, turn.why) == ("Sit down.\nThe kettle sings.", "done", "")
        shown = ""
        while len(shown) < len(turn.text):
            live = (await anext(words)).body
            assert isinstance(live, LiveText)
            assert live.offset == len(shown)
            shown += live.text
    assert shown == turn.text
    assert not any("Thank you" in text for text in stage.memories_of(bot.id))
    logged = "".join(str(event.payload) for event in stage.store.reader.read(room))
    assert "Thank you" not in logged


async def test_s13_providers_are_asked_to_stop_where_others_would_speak(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    room = await stage.start_chat(await stage.create_character())
    guest = await stage.create_character("Io")
    await stage.story.invite(room, guest.id)
    await stage.say(room, "Mara?")
    assert script.asked[-1].prompt.stop == ("\nAna:", "\nIo:")
    await stage.say(room, "Io?")
    assert script.asked[-1].prompt.stop == ("\nAna:", "\nMara:")


async def test_s12_a_wrong_label_before_the_first_words_costs_nobody_the_reply(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    room = await stage.start_chat(await stage.create_character())
    script.replies = ["You: Hello there!\nYou: And who are you?"]
    begun = await stage.say(room, "Good evening.")
    turn = stage.story.timeline.turn(room, begun.reply)
    assert (turn.text, turn.state) == ("Hello there!", "done")


async def test_s12_a_model_that_loses_the_thread_ends_with_a_sentence_and_the_reply_is_whole(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    catalogue = stage.models.catalogue
    details = {"embedded/script": ModelDetails(max_story_words=4)}
    catalogue.settings = catalogue.settings.model_copy(update={"details": details})
    room = await stage.start_chat(await stage.create_character())
    script.faults = [pieces("Sit down. The kettle sings. And so on, and on, and on.", 3)]
    begun = await stage.say(room, "Good evening.")
    turn = stage.story.timeline.turn(room, begun.reply)
    assert (turn.text, turn.state, turn.why) == ("Sit down. The kettle sings.", "done", "")
    assert turn.model == "embedded/script", "known though it was left early"
