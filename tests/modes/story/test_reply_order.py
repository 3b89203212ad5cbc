"""Messages without a reply, continued replies, several replies to one message, greetings, and suggested messages."""

from __future__ import annotations

import pytest

from coterie.base.errors import BadPoint
from coterie.characters.cards.card import Card
from coterie.characters.identity import Identity
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.story.edits import FieldEdit
from tests.modes.story.conftest import ScriptedModel, StoryHarness


async def test_s11_a_message_of_notes_only_gets_no_reply(harness: StoryHarness, script: ScriptedModel) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    for text in ("((brb, phone))", "((an unclosed note"):
        begun = await harness.say(room, text, key=text)
        assert (begun.reply, begun.speaker) == ("", "")
        assert await harness.say(room, text, key=text) == begun
    assert script.asked == []
    assert harness.memories_of(mara.id) == []
    await harness.say(room, "Back.")
    assert "phone" not in script.prompt()


async def test_a_message_without_a_reply_is_remembered_and_can_get_one_later(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    begun = await harness.say(room, "I put the key under the stone.", reply=False, key="k")
    assert await harness.say(room, "I put the key under the stone.", reply=False, key="k") == begun
    assert script.asked == []
    assert harness.memories_of(mara.id) == ["I put the key under the stone."]
    await harness.say(room, "It is late.", reply=False)
    await harness.say(room, "We drove to the park.", reply=False)
    details = harness.story.details(room)
    assert details.scene is not None
    assert details.scene.place == "the park"
    reply = await harness.regenerate(room)
    assert "under the stone" in script.prompt()
    assert harness.story.timeline.turn(room, reply.reply).answers is not None


async def test_a_continued_reply_is_an_alternative_with_the_longer_text(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    script.replies = ["The lamp went", " out at midnight."]
    await harness.say(room, "What happened?")
    begun = await harness.story.continue_reply(room)
    await harness.story.replies.wait(room)
    await harness.run_jobs()
    assert harness.texts(room)[-1] == "The lamp went out at midnight."
    assert [message.role for message in script.asked[-1].prompt.messages][-2:] == ["assistant", "user"]
    assert script.asked[-1].prompt.messages[-2].text == "The lamp went"
    alternatives = await harness.story.alternatives(room, begun.reply)
    assert [one.text for one in alternatives] == ["The lamp went", "The lamp went out at midnight."]
    assert harness.memories_of(mara.id) == ["The lamp went out at midnight.", "What happened?"]
    script.faults = [RecordedCall(error=RecordedError(kind="KeyRejected", what="It failed.", status=401))]
    await harness.story.continue_reply(room)
    await harness.story.replies.wait(room)
    assert harness.texts(room)[-1] == "The lamp went out at midnight."  # a failure loses nothing


async def test_s6_several_characters_reply_to_one_message(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, theo = await harness.create_character(), await harness.create_character("Theo")
    room = await harness.start_chat(mara)
    await harness.story.invite(room, theo.id)
    script.replies = ["Mara speaks.", "Theo speaks.", "Theo speaks again.", "Mara once more."]
    first = await harness.say(room, "Mara, Theo, hello.")
    second = await harness.story.add_reply(room)
    await harness.story.replies.wait(room)
    assert (first.speaker, second.speaker) == (mara.id, theo.id)
    assert second.turn == first.turn
    again = await harness.regenerate(room)
    assert again.speaker == theo.id
    assert harness.texts(room) == ["Mara, Theo, hello.", "Mara speaks.", "Theo speaks again."]
    assert [one.text for one in await harness.story.alternatives(room, again.reply)] == [
        "Theo speaks.",
        "Theo speaks again.",
    ]
    assert [one.text for one in await harness.story.alternatives(room, first.reply)] == ["Mara speaks."]
    await harness.story.choose(room, second.reply)
    assert harness.texts(room)[-1] == "Theo speaks."
    script.replies = ["To the new words."]
    await harness.regenerate(room, text="Mara, hello.")
    assert harness.texts(room) == ["Mara, hello.", "To the new words."]


async def test_s6_the_reply_order_of_a_chat(harness: StoryHarness, script: ScriptedModel) -> None:
    mara, theo, ida = [await harness.create_character(name) for name in ("Mara", "Theo", "Ida")]
    room = await harness.start_chat(mara)
    for guest in (theo, ida):
        await harness.story.invite(room, guest.id)
    order = harness.story.chats.chat(room).characters

    async def speakers(text: str) -> list[str]:
        begun = await harness.say(room, text)
        for _ in range(4):
            await harness.story.replies.wait(room)
            await harness.run_jobs()
        return [turn.speaker for turn in harness.story.timeline.replies_to(room, begun.turn)]

    await harness.story.edit(room, [FieldEdit(field="reply_order", value="everyone")])
    assert await speakers("Hello.") == order
    await harness.story.edit(room, [FieldEdit(field="muted", value=["Theo"])])
    assert await speakers("Hello.") == [one for one in order if one != theo.id]
    await harness.story.edit(room, [FieldEdit(field="reply_order", value="in turn")])
    last = harness.story.timeline.latest(room, 1)[0].speaker
    (following,) = await speakers("Theo?")
    assert following not in (last, theo.id)
    await harness.story.edit(room, [FieldEdit(field="reply_order", value="manual")])
    assert await speakers("Anybody?") == []
    begun = await harness.say(room, "Theo?", speaker="Theo")
    assert begun.speaker == theo.id
    details = harness.story.details(room)
    assert (details.reply_order, details.muted) == ("manual", [theo.id])


async def test_s9_the_greetings_of_a_card_are_alternatives_and_can_be_written_anew(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    data = {
        "name": "Mara",
        "description": "Keeps the lamp.",
        "scenario": "A storm keeps {{user}} in the lighthouse.",
        "first_mes": "Come in, {{user}}.",
        "alternate_greetings": ["You again?", "Mind the step."],
        "mes_example": "<START>\n{{user}}: Tea?\n{{char}}: Always.",
        "post_history_instructions": "Keep it short.",
    }
    card = Card.read({"spec": "chara_card_v2", "spec_version": "2.0", "data": data})
    mara = await harness.characters.save(Identity.from_card(card), card)
    proposal = await harness.story.propose_opening(mara.id)
    assert proposal.opening.greeting == "Come in, {{user}}."
    room = (await harness.story.begin(mara.id, proposal.opening)).room
    (greeting,) = harness.story.timeline.latest(room, 5)
    assert greeting.text == "Come in, Ana."
    others = await harness.story.alternatives(room, greeting.id)
    assert [one.text for one in others] == ["Come in, Ana.", "You again?", "Mind the step."]
    await harness.story.choose(room, others[1].reply)
    assert harness.texts(room) == ["You again?"]
    script.replies = ["Who is there?"]
    begun = await harness.regenerate(room)
    assert harness.texts(room) == ["Who is there?"]
    assert len(await harness.story.alternatives(room, begun.reply)) == 4
    with pytest.raises(BadPoint):
        await harness.regenerate(room, text="Changed.")
    await harness.say(room, "Me.")
    prompt = script.asked[-1].prompt
    # The scenario and the examples stand before the dialogue, the card's instructions after it.
    assert "A storm keeps Ana in the lighthouse." in prompt.messages[0].text
    assert "Ana: Tea?\nMara: Always." in prompt.messages[0].text
    assert "Keep it short." not in prompt.messages[0].text
    assert prompt.messages[-1].text == "Keep it short."
    assert prompt.messages[-2].text == "Ana: Me."
    await harness.story.reset(mara.id, "Mara")
    await harness.say(room, "Hello again.")
    assert harness.texts(room)[0] == "Come in, Ana."
    (first, *_) = harness.story.timeline.latest(room, 5)
    assert len(await harness.story.alternatives(room, first.id)) >= 3


async def test_s8_the_first_words_of_an_authored_character_are_a_greeting(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character(kickoff="Ana arrives at night. Mara is wary at first.")
    script.shapes["Opening"] = {"title": "Night", "greeting": "*She lifts the lantern.* “Who is there?”"}
    assert (await harness.story.propose_opening(mara.id)).opening.greeting == "*She lifts the lantern.* “Who is there?”"


async def test_a_suggested_message_is_written_for_the_person_and_not_recorded(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character(persona="Mara hides the xylophone.")
    room = await harness.start_chat(mara, greeting="Come in.")
    await harness.say(room, "Hello. ((a note))")
    head = harness.store.reader.head(room)
    script.replies = ["Ana: I sit down.\nMara: No."]
    assert await harness.story.suggest_message(room) == "I sit down."
    messages = script.asked[-1].prompt.messages
    assert [message.role for message in messages[1:]] == ["user", "assistant", "user"]
    assert "A cartographer." in messages[0].text
    assert "xylophone" not in script.prompt()
    assert "a note" not in script.prompt()
    assert harness.store.reader.head(room) == head
    script.replies = ["and close the door."]
    assert await harness.story.suggest_message(room, beginning="I sit down") == "and close the door."
    assert script.asked[-1].prompt.messages[-2].text.endswith("I sit down")


async def test_s22_a_failed_retry_is_not_an_empty_alternative(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    script.replies = ["Good."]
    await harness.say(room, "Hello.")
    fault = RecordedCall(error=RecordedError(kind="KeyRejected", what="It failed.", status=401))
    script.faults = [fault]
    failed = await harness.regenerate(room)
    assert [one.text for one in await harness.story.alternatives(room, failed.reply)] == ["Good.", ""]
    script.replies = ["Better."]
    begun = await harness.regenerate(room)
    assert [one.text for one in await harness.story.alternatives(room, begun.reply)] == ["Good.", "Better."]
