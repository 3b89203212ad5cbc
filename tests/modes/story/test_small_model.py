"""A story with the bundled model: it is asked with a script, and rules stand in for the analysis it cannot do."""

from __future__ import annotations

import pytest

from coterie.characters import OWNER, Identity, replies_of, starter_character
from coterie.llm import ScriptLine
from coterie.modes.story.analysis.exchange_rules import estimate_exchange
from coterie.modes.story.script_prompts import SpokenTurn, build_script, read_exchanges
from tests.modes.story.conftest import ScriptedModel, StoryHarness


@pytest.fixture
def bundled(harness: StoryHarness) -> StoryHarness:
    """The story with the bundled model for every role; the scripted provider answers in its place."""
    harness.models.settings.roles.clear()
    assert harness.models.catalogue.supports_analysis() is False
    return harness


async def test_l10_the_bundled_model_is_asked_with_a_script(bundled: StoryHarness, script: ScriptedModel) -> None:
    mara = await bundled.create_character(
        voice_samples=["{{user}}: Cold?\n{{char}}: Only the soup.", '"Sit," *she says.* "The lamp is old."']
    )
    room = await bundled.start_chat(mara, greeting='*The door opens.* "Come in. Sit down."')
    await bundled.say(room, "*waves* Hello! ((a note))")
    asked = script.asked[-1].prompt
    assert asked.script is not None
    assert [line.text for line in asked.script.lines] == ["Come in. Sit down.", "(waves) Hello!"]
    assert asked.script.speaker == "Mara"
    assert {"Only the soup.", "Sit, The lamp is old."} == set(asked.script.author_lines)
    assert "keeps a lighthouse" in asked.script.preface
    assert "note" not in asked.model_dump_json()
    names = {
        part.name.split()[0]
        for part in bundled.story.prompts.sent_prompts.inspect(room, bundled_reply(bundled, room)).parts
    }
    assert names == {"preface", "voice", "turn"}


def bundled_reply(harness: StoryHarness, room: str) -> str:
    return harness.story.timeline.latest(room, 1)[0].id


async def test_other_models_are_asked_without_a_script(harness: StoryHarness, script: ScriptedModel) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "Hello.")
    assert all(request.prompt.script is None for request in script.asked)


async def test_l10_no_analysis_is_asked_of_the_bundled_model(bundled: StoryHarness, script: ScriptedModel) -> None:
    mara = await bundled.create_character()
    room = await bundled.start_chat(mara)
    await bundled.say(room, "Thank you for the tea.")
    await bundled.say(room, "Shut up.")
    await bundled.say(room, "The next morning I come down for breakfast.")
    proposal = await bundled.story.propose_opening((await bundled.create_character("Ada", kickoff="A door.")).id)
    assert "cannot read the scene" in proposal.notice
    assert all(request.prompt.output_schema is None for request in script.asked)
    edge = bundled.story.relationships.get(bundled.story.chats.chat(room).world, mara.id, OWNER)
    assert edge.affinity == 50  # one step up, one down
    assert bundled.story.chats.scene_summaries(room, mara.id)
    bundled.verify()


@pytest.mark.parametrize(
    ("message", "affinity", "trust", "significance"),
    [
        ("Thank you.", 1, 0, 1),
        ("You idiot.", -1, 0, 1),
        ("I lied to you.", -1, -1, 2),
        ("I promise.", 0, 1, 2),
        ("I love you.", 1, 0, 3),
        ("ok", 0, 0, 0),
        ("", 0, 0, 0),
        ("What are you repairing?", 0, 0, 1),
    ],
)
def test_clear_words_change_feelings(message: str, affinity: int, trust: int, significance: int) -> None:
    found = estimate_exchange(message)
    signs = [(delta > 0) - (delta < 0) for delta in (found.affinity_delta, found.trust_delta)]
    assert (*signs, found.significance) == (affinity, trust, significance)


def test_a_script_needs_a_line_to_answer() -> None:
    assert build_script(Identity(name="Mara"), "Ana", ["Ana"], []) is None
    alone = build_script(Identity(name="Mara"), "Ana", ["Ana"], [SpokenTurn("t", "Ana", "Hi.", by_person=True)])
    assert alone is not None
    assert (alone.examples, alone.author_lines) == ((), ())


@pytest.mark.parametrize("name", ["maren", "teodor", "io"])
def test_starter_characters_have_exchanges_for_a_script(name: str) -> None:
    identity = starter_character(name)
    exchanges = read_exchanges(identity, "Ana", lambda text: text.replace("{{user}}", "Ana"))
    assert sum(len(exchange) == 2 for exchange in exchanges) >= 8
    assert all(isinstance(line, ScriptLine) and line.text for exchange in exchanges for line in exchange)
    assert {exchange[-1].speaker for exchange in exchanges} == {identity.name}


def answered(name: str, message: str, *earlier: tuple[str, bool]) -> str:
    """What the author of a ready-made character wrote for a message."""
    identity = starter_character(name)
    turns = [SpokenTurn("", "Ana" if by_person else identity.name, text, by_person) for text, by_person in earlier]
    turns.append(SpokenTurn("last", "Ana", message, by_person=True))
    script = build_script(identity, "Ana", ["Ana"], turns, expand=lambda text: text.replace("{{user}}", "Ana"))
    assert script is not None
    return script.author_reply


@pytest.mark.parametrize(
    ("name", "message", "reply"),
    [
        ("maren", "hello?", "Hello yourself"),
        ("maren", "I am Ana. My brother died last spring.", "I had a brother"),
        ("maren", "*hugs her*", "All right."),
        ("maren", "what's my name", "Ana."),
        ("maren", "((short)) Could you help me with my maths homework?", "I can do tides"),
        ("maren", "Thanks!", "It's only tea."),
        ("teodor", "Where is this train going?", "Over two bridges"),
        ("io", "I passed the exam today!", "That is excellent"),
    ],
)
def test_l10_a_message_that_the_author_foresaw_gets_the_authors_reply(name: str, message: str, reply: str) -> None:
    assert answered(name, message).startswith(reply)


@pytest.mark.parametrize(
    "message",
    [
        "You look tired.",  # not the person who is tired
        "The lamp is broken.",
        "How does a radio work?",
        "How many boats are there?",
        "Do you think it will storm tomorrow?",
        "Hello. I would like to know what happened to the boats that were lost here.",
        "I hate my brother.",
        "*picks up the soldering iron*",
        "",
    ],
)
def test_l10_another_message_is_left_to_the_model(message: str) -> None:
    assert answered("maren", message) == ""


def test_l10_the_author_is_not_quoted_twice() -> None:
    first = answered("maren", "Tell me a joke.")
    assert first
    assert answered("maren", "Tell me another joke.", ("Tell me a joke.", True), (first, False)) != first


async def test_l10_a_foreseen_message_is_answered_in_the_chat_without_the_models_words(
    bundled: StoryHarness, script: ScriptedModel
) -> None:
    identity = starter_character("maren")
    maren = await bundled.create_character(**identity.model_dump(exclude={"id"}))
    room = await bundled.start_chat(maren)
    await bundled.say(room, "Where can I sleep?")
    asked = script.asked[-1].prompt.script
    assert asked is not None
    assert asked.author_reply.startswith("The room over the store.")


def test_l10_only_an_unchanged_ready_made_character_has_the_authors_replies() -> None:
    maren = starter_character("maren")
    assert len(replies_of(maren)) >= 40
    assert replies_of(maren.model_copy(update={"name": "Hale"})) == ()
    assert replies_of(maren.model_copy(update={"kickoff": "A door."})) == ()


@pytest.mark.parametrize("name", ["maren", "teodor", "io"])
def test_the_authors_replies_are_distinct_and_short(name: str) -> None:
    replies = replies_of(starter_character(name))
    messages = [message for reply in replies for message in reply.messages]
    texts = [reply.text for reply in replies]
    assert len(set(messages)) == len(messages)
    assert len(set(texts)) == len(texts)
    assert all(len(text.split()) <= 40 for text in texts)
