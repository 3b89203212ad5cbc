"""A story held through the engine's port, as surfaces hold it. P2, P4"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from coterie.conversation.errors import PermissionDenied
from coterie.conversation.events import AssistantTurnStarted
from coterie.conversation.feed import Feed
from coterie.eventstore import NewEvent
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.messaging.ports import ReplyDelta, ReplyFinished, ReplyUpdate
from coterie.messaging.protocol import Attachment
from coterie.modes.story import StoryConversation
from tests.modes.story.conftest import ScriptedModel, StoryHarness


def held(stage: StoryHarness) -> StoryConversation:
    return StoryConversation(stage.store, stage.story, stage.roster, Feed(stage.store, stage.story.replies))


async def told(speech: AsyncIterator[ReplyUpdate]) -> tuple[str, ReplyFinished | None]:
    """The words as they came, and how it ended."""
    words, end = "", None
    async for one in speech:
        if isinstance(one, ReplyDelta):
            words += one.text
        elif isinstance(one, ReplyFinished):
            end = one
    return words, end


async def begun(stage: StoryHarness) -> tuple[StoryConversation, str]:
    bot = await stage.create_character(kickoff="Mara looks up.")
    talk = held(stage)
    opened = await talk.open("you", bot.id, "Evening", at_once=True)
    assert opened.greeting == "Mara looks up."
    await stage.store.append(opened.new_events)
    return talk, opened.context


async def test_p2_words_and_then_the_whole(stage: StoryHarness, script: ScriptedModel) -> None:
    talk, room = await begun(stage)
    script.replies = ["The lamp is lit.", "It is, still."]
    file = Attachment(name="a *map*.png", path="files/r/a map.png")
    words, end = await told(talk.send_message(room, "Is it?", person="you", key="k1", attachments=[file]))
    assert end == ReplyFinished("The lamp is lit.", "Mara") and end.text.startswith(words)
    assert "hands over a file: a map .png (files/r/a map.png)" in script.prompt()
    assert (await told(talk.send_message(room, "Is it?", person="you", key="k1")))[1] == end, (
        "the same key, the same answer"
    )
    assert (await told(talk.retry(room, person="you")))[1] == ReplyFinished("It is, still.", "Mara")
    await talk.rename(room, "Night")
    standing = talk.status(room)
    assert (standing.title, standing.character, standing.turns) == ("Night", "Mara", 3)
    assert await talk.stop(room) is False
    await stage.run_jobs()


async def test_p2_what_breaks_off_is_told_in_a_sentence(stage: StoryHarness, script: ScriptedModel) -> None:
    talk, room = await begun(stage)
    script.faults = [RecordedCall(say="Half a", error=RecordedError(kind="RequestRefused", what="The model said no."))]
    _, end = await told(talk.send_message(room, "Go on.", person="you", key="k1"))
    assert end is not None and end.text == "Half a" and "The model said no." in end.error
    await stage.run_jobs()


async def test_p4_an_answer_that_a_crash_cut_off_is_given_again(
    stage: StoryHarness, script: ScriptedModel, restart: Callable[[], None]
) -> None:
    talk, room = await begun(stage)
    script.replies = ["Never heard."]
    await told(talk.send_message(room, "Hello?", person="you", key="k1"))
    await stage.run_jobs()
    # As if the process had ended while the reply to the next message was being given.
    said = await stage.story.say(room, "And now?", key="k2")
    await stage.story.replies.wait(room)
    await stage.store.supersede(room, drop=await stage.store.turn_seqs(room, said.reply))
    started = AssistantTurnStarted(reply="cut", speaker=said.speaker, answers=said.turn)
    await stage.store.append([NewEvent(room, started, said.speaker, turn="cut")])
    restart()
    await stage.story.recover()
    script.replies = ["Here I am."]
    _, end = await told(held(stage).send_message(room, "And now?", person="you", key="k2"))
    assert end == ReplyFinished("Here I am.", "Mara")
    assert stage.texts(room)[-2:] == ["And now?", "Here I am."]
    await stage.run_jobs()


async def test_p3_a_story_is_for_whose_it_is_until_others_are_let_in(
    stage: StoryHarness, script: ScriptedModel
) -> None:
    talk, room = await begun(stage)
    for speech in (talk.send_message(room, "Hello", person="bo", key="k"), talk.retry(room, person="bo")):
        with pytest.raises(PermissionDenied, match="somebody else's"):
            await told(speech)
    assert script.asked == []
