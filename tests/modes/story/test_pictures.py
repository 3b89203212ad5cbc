"""Pictures in messages, for models that can see and in words for all others; and the picture behind a place."""

from __future__ import annotations

import pytest

from coterie.characters.errors import BadPicture
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.llm.settings import ModelDetails, Role
from coterie.modes.story.edits import FieldEdit
from tests.modes.story.conftest import ScriptedModel, StoryHarness

BOAT, DOG = (b"\x89PNG\r\n\x1a\n" + name for name in (b"boat", b"dog"))
SEEN = {BOAT: "A red boat lies on a beach. They walk to the harbour.", DOG: "A dog."}


class SeeingScript(ScriptedModel):
    """Describes pictures if it is asked with one and nothing else."""

    described: int = 0

    def answer(self, request: CompletionRequest) -> RecordedCall:
        *_, last = request.prompt.messages
        if last.text == "The picture:":
            self.described += 1
            return RecordedCall(say=SEEN[bytes(last.images[0].data)])
        return super().answer(request)

    def images(self, number: int = -1) -> list[bytes]:
        return [bytes(image.data) for message in self.asked[number].prompt.messages for image in message.images]


@pytest.fixture
def script() -> SeeingScript:
    return SeeingScript()


def use_vision(harness: StoryHarness) -> None:
    harness.models.settings.roles[Role.VISION] = ("embedded/vision",)


def use_seeing_narrator(harness: StoryHarness) -> None:
    harness.models.settings.details["embedded/script"] = ModelDetails(vision=True)


async def test_l6_a_model_that_sees_gets_the_picture_with_the_message(
    harness: StoryHarness, script: SeeingScript
) -> None:
    use_seeing_narrator(harness)
    room = await harness.start_chat(await harness.create_character())
    boat = harness.pictures.save(BOAT)
    await harness.say(room, "Look at this.", pictures=[boat])
    assert script.images() == [BOAT]
    await harness.say(room, "And now?")
    assert script.images() == [BOAT], "it is still among the last turns"
    for number in range(4):
        await harness.say(room, f"Sentence {number}.")
    assert script.images() == []
    assert "shows a picture: A red boat" in script.prompt(), "later its description stands for it"


async def test_l6_for_a_model_that_cannot_see_a_picture_is_described_once(
    harness: StoryHarness, script: SeeingScript
) -> None:
    use_vision(harness)
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    await harness.say(room, "Look at this.", pictures=[harness.pictures.save(BOAT)])
    assert script.images() == []
    assert "Ana: Look at this. *shows a picture: A red boat lies on a beach. They walk to the harbour.*" in (
        script.prompt()
    )
    await harness.regenerate(room)
    await harness.say(room, "What was on it?")
    assert script.described == 1
    assert any("A red boat" in memory for memory in harness.memories_of(mara.id))
    assert len(harness.story.chats.containers(room)) == 1, "what a picture shows does not move anybody"


async def test_l6_without_a_model_that_sees_the_message_says_that_there_is_a_picture(
    harness: StoryHarness, script: SeeingScript
) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "", pictures=[harness.pictures.save(BOAT)])
    assert script.described == 0
    assert "Ana: *shows a picture*" in script.prompt()


async def test_l6_a_fallback_that_cannot_see_gets_the_description(harness: StoryHarness, script: SeeingScript) -> None:
    use_seeing_narrator(harness)
    harness.models.settings.roles[Role.NARRATIVE] = ("embedded/script", "embedded/blind")
    script.faults = [
        RecordedCall(error=RecordedError(kind="RateLimited", what="Too fast.", status=429, retry_after=60))
    ]
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "Look.", pictures=[harness.pictures.save(DOG)])
    assert script.asked[-1].model == "blind"
    assert script.images() == []
    assert "*shows a picture: A dog.*" in script.prompt()


async def test_l6_m6_a_rewind_takes_pictures_back_and_a_fork_keeps_them(
    harness: StoryHarness, script: SeeingScript
) -> None:
    use_vision(harness)
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    first = await harness.say(room, "Good evening.")
    shown = await harness.say(room, "Look.", pictures=[harness.pictures.save(DOG)])
    fork = await harness.story.fork(room, shown.reply)
    await harness.story.rewind(room, first.reply)
    await harness.say(room, "And?")
    assert "picture" not in script.prompt()
    assert not any("A dog" in memory for memory in harness.memories_of(mara.id, room))
    await harness.say(fork.room, "And?")
    assert "*shows a picture: A dog.*" in script.prompt()
    assert [turn.pictures[0].description for turn in harness.story.timeline.latest(fork.room, 9) if turn.pictures] == [
        "A dog."
    ]


async def test_l6_an_edited_message_keeps_its_described_pictures(harness: StoryHarness, script: SeeingScript) -> None:
    use_vision(harness)
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "Look.", pictures=[harness.pictures.save(DOG)])
    await harness.regenerate(room, text="Look closely.")
    assert "Look closely. *shows a picture: A dog.*" in script.prompt()
    assert script.described == 1


async def test_l6_pictures_that_are_not_stored_or_too_many_are_refused(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character())
    with pytest.raises(BadPicture):
        await harness.story.send_message(room, "Look.", pictures=["0" * 32])
    many = [harness.pictures.save(BOAT + bytes([number])) for number in range(5)]
    with pytest.raises(BadPicture):
        await harness.story.send_message(room, "Look.", pictures=many)
    assert harness.texts(room) == []


async def test_l6_a_whispered_picture_is_for_its_listeners_only(harness: StoryHarness, script: SeeingScript) -> None:
    use_vision(harness)
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    await harness.say(room, "Look.", to=[mara.id], pictures=[harness.pictures.save(DOG)])
    await harness.say(room, "What do you think?", speaker=theo.id)
    assert "A dog" not in script.prompt()
    assert not any("A dog" in memory for memory in harness.memories_of(theo.id))


async def test_s5_s21_a_background_belongs_to_a_place_and_follows_rewinds_and_forks(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character())
    story = harness.story
    first = await harness.say(room, "Good evening.")
    (place,) = story.chats.containers(room)
    field = f"container.{place}.background"
    with pytest.raises(BadPicture):
        await story.edit(room, [FieldEdit(field=field, value="0" * 32)])
    boat, dog = harness.pictures.save(BOAT), harness.pictures.save(DOG)
    await story.edit(room, [FieldEdit(field=field, value=boat)])
    await harness.say(room, "And now?")
    await story.edit(room, [FieldEdit(field=field, value=dog)])
    await harness.say(room, "We walk to the harbour.")
    at = story.chats.scene(room, str(story.chats.chat(room).scene)).container
    assert story.chats.containers(room)[at].background == ""
    assert story.chats.containers(room)[place].background == dog
    fork = await story.fork(room, first.reply)
    assert story.chats.containers(fork.room)[place].background == boat
    await story.rewind(room, first.reply)
    assert story.chats.containers(room)[place].background == boat
    await story.undo_rewind(room)
    assert story.chats.containers(room)[place].background == dog
