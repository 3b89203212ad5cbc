"""D23: one character asks another, with permission and a daily limit."""

from __future__ import annotations

from coterie.characters.identity import Identity
from coterie.modes.desk.agents.branches import CharacterQuestions
from coterie.modes.desk.events import CharacterAsked
from tests.modes.desk.conftest import DeskHarness, Script, calls


async def begin(harness: DeskHarness, script: Script) -> tuple[str, str]:
    room = await harness.begin()
    orla = await harness.characters.save(Identity(name="Orla", persona="Orla does the accounting."))
    harness.memory.add("The rent is due on the third", owner=orla.id, room="room:accounts", disclosure="open")
    script.lines["channel"] = [
        calls(("branch", {"thought": "When is the rent due?"}), ("reply", {"text": "A moment."}))
    ]
    return room, orla.id


async def test_d23_the_other_answers_from_its_own_memory_and_both_remember_it(
    harness: DeskHarness, script: Script
) -> None:
    room, orla = await begin(harness, script)
    script.lines["branch"] = [
        calls(("ask", {"character": "Orla", "question": "When is the rent due?"})),
        "On the third.",  # Orla
        "The rent is due on the third, says Orla.",
    ]
    await harness.say(room, "When is the rent due?")
    prompt = script.prompts("branch")[1]
    assert "You are Orla." in prompt and "rent is due on the third" in prompt and "Mara asks" in prompt
    assert "Orla says: On the third." in script.prompts("branch")[2]
    (asked,) = [e.payload for e in await harness.store.read(room) if isinstance(e.payload, CharacterAsked)]
    assert (asked.asker, asked.asked, asked.answer) == (harness.character, orla, "On the third.")
    (memory,) = harness.memory.browse(owner=harness.character)
    assert (memory.text, memory.speaker, memory.told_by) == ("Orla told me: On the third.", "Orla", orla)
    assert "Mara asked me: When is the rent due?" in [memory.text for memory in harness.memory.browse(owner=orla)]


async def test_d23_without_permission_there_is_no_ask_tool(harness: DeskHarness, script: Script) -> None:
    room, _ = await begin(harness, script)
    questions: CharacterQuestions = harness.questions
    questions._may_talk = lambda person, character: character == harness.character
    script.lines["branch"] = [calls(("ask", {"character": "Orla", "question": "?"})), "I do not know."]
    await harness.say(room, "When is the rent due?")
    assert "There is no tool 'ask'" in script.prompts("branch")[-1]


async def test_d23_the_daily_limit_holds(harness: DeskHarness, script: Script) -> None:
    room, _ = await begin(harness, script)
    harness.questions._max_per_day = 1
    script.lines["branch"] = [
        calls(("ask", {"character": "Orla", "question": "First?"})),
        "Yes.",
        calls(("ask", {"character": "Orla", "question": "Second?"})),
        "Well.",
    ]
    await harness.say(room, "Ask twice")
    assert "1 times today" in script.prompts("branch")[-1]
    assert sum(kind == "branch" for kind, _ in script.requests) == 4
