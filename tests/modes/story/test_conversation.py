"""The messaging port of the story mode."""

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


def new_conversation(harness: StoryHarness) -> StoryConversation:
    return StoryConversation(
        harness.store, harness.story, harness.characters, Feed(harness.store, harness.story.replies)
    )


async def collect(updates: AsyncIterator[ReplyUpdate]) -> tuple[str, ReplyFinished | None]:
    """The streamed text, and how the reply ended."""
    text, end = "", None
    async for update in updates:
        if isinstance(update, ReplyDelta):
            text += update.text
        elif isinstance(update, ReplyFinished):
            end = update
    return text, end


async def open_chat(harness: StoryHarness) -> tuple[StoryConversation, str]:
    character = await harness.create_character(kickoff="Mara looks up.")
    conversation = new_conversation(harness)
    opened = await conversation.open("you", character.id, "Evening", at_once=True)
    assert opened.greeting == "Mara looks up."
    await harness.store.append(opened.new_events)
    return conversation, opened.context


async def test_p2_a_reply_is_streamed_and_then_complete(harness: StoryHarness, script: ScriptedModel) -> None:
    conversation, room = await open_chat(harness)
    script.replies = ["The lamp is lit.", "It is, still."]
    file = Attachment(name="a *map*.png", path="files/r/a map.png")
    text, end = await collect(conversation.send_message(room, "Is it?", person="you", key="k1", attachments=[file]))
    assert end == ReplyFinished("The lamp is lit.", "Mara") and end.text.startswith(text)
    assert "hands over a file: a map .png (files/r/a map.png)" in script.prompt()
    assert (await collect(conversation.send_message(room, "Is it?", person="you", key="k1")))[1] == end, (
        "the same key gives the same reply"
    )
    assert (await collect(conversation.retry(room, person="you")))[1] == ReplyFinished("It is, still.", "Mara")
    await conversation.rename(room, "Night")
    status = conversation.status(room)
    assert (status.title, status.character, status.turns) == ("Night", "Mara", 3)
    assert await conversation.stop(room) is False
    await harness.run_jobs()


async def test_p2_an_interrupted_reply_ends_with_an_error_message(harness: StoryHarness, script: ScriptedModel) -> None:
    conversation, room = await open_chat(harness)
    script.faults = [RecordedCall(say="Half a", error=RecordedError(kind="RequestRefused", what="The model said no."))]
    _, end = await collect(conversation.send_message(room, "Go on.", person="you", key="k1"))
    assert end is not None and end.text == "Half a" and "The model said no." in end.error
    await harness.run_jobs()


async def test_p4_a_reply_that_a_crash_interrupted_is_generated_again(
    harness: StoryHarness, script: ScriptedModel, restart: Callable[[], None]
) -> None:
    conversation, room = await open_chat(harness)
    script.replies = ["Never delivered."]
    await collect(conversation.send_message(room, "Hello?", person="you", key="k1"))
    await harness.run_jobs()
    # As if the process had ended during the reply to the next message.
    said = await harness.story.send_message(room, "And now?", key="k2")
    await harness.story.replies.wait(room)
    await harness.store.supersede(room, drop=await harness.store.turn_seqs(room, said.reply))
    started = AssistantTurnStarted(reply="cut", speaker=said.speaker, answers=said.turn)
    await harness.store.append([NewEvent(room, started, said.speaker, turn="cut")])
    restart()
    await harness.story.recover()
    script.replies = ["Here I am."]
    _, end = await collect(new_conversation(harness).send_message(room, "And now?", person="you", key="k2"))
    assert end == ReplyFinished("Here I am.", "Mara")
    assert harness.texts(room)[-2:] == ["And now?", "Here I am."]
    await harness.run_jobs()


async def test_p3_only_people_in_a_story_may_write_in_it(harness: StoryHarness, script: ScriptedModel) -> None:
    conversation, room = await open_chat(harness)
    for updates in (
        conversation.send_message(room, "Hello", person="bo", key="k"),
        conversation.retry(room, person="bo"),
    ):
        with pytest.raises(PermissionDenied, match="somebody else's"):
            await collect(updates)
    assert script.asked == []
