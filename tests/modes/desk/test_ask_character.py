"""D23: one character asks another, with permission and a budget; who said what is marked."""

from __future__ import annotations

from coterie.characters.identity import Identity
from coterie.modes.desk.agents.branches import CharacterQuestions
from coterie.modes.desk.events import CharacterAsked
from tests.modes.desk.conftest import Script, Stage, calls


async def begin(stage: Stage, script: Script) -> tuple[str, str]:
    room = await stage.begin()
    orla = await stage.roster.save(Identity(name="Orla", persona="Orla keeps the books."))
    stage.memory.add("The rent is due on the third", owner=orla.id, room="room:books", disclosure="open")
    script.lines["channel"] = [
        calls(("branch", {"thought": "When is the rent due?"}), ("reply", {"text": "A moment."}))
    ]
    return room, orla.id


async def test_d23_the_other_answers_from_its_own_memory_and_both_remember_who_said_it(
    stage: Stage, script: Script
) -> None:
    room, orla = await begin(stage, script)
    script.lines["branch"] = [
        calls(("ask", {"character": "Orla", "question": "When is the rent due?"})),
        "On the third.",  # Orla
        "The rent is due on the third, says Orla.",
    ]
    await stage.say(room, "When is the rent due?")
    orlas = script.prompts("branch")[1]
    assert "You are Orla." in orlas and "rent is due on the third" in orlas and "Mara asks" in orlas
    assert "Orla says: On the third." in script.prompts("branch")[2]
    (asked,) = [e.payload for e in await stage.store.read(room) if isinstance(e.payload, CharacterAsked)]
    assert (asked.asker, asked.asked, asked.answer) == (stage.character, orla, "On the third.")
    (heard,) = stage.memory.browse(owner=stage.character)
    assert (heard.text, heard.speaker, heard.told_by) == ("Orla told me: On the third.", "Orla", orla)
    assert "Mara asked me: When is the rent due?" in [memory.text for memory in stage.memory.browse(owner=orla)]


async def test_d23_without_permission_nobody_is_asked(stage: Stage, script: Script) -> None:
    room, _ = await begin(stage, script)
    asking: CharacterQuestions = stage.asking
    asking._may_talk = lambda person, character: character == stage.character
    script.lines["branch"] = [calls(("ask", {"character": "Orla", "question": "?"})), "I do not know."]
    await stage.say(room, "When is the rent due?")
    assert "There is no tool 'ask'" in script.prompts("branch")[-1]


async def test_d23_the_budget_of_a_day_is_kept(stage: Stage, script: Script) -> None:
    room, _ = await begin(stage, script)
    stage.asking._most_a_day = 1
    script.lines["branch"] = [
        calls(("ask", {"character": "Orla", "question": "First?"})),
        "Yes.",
        calls(("ask", {"character": "Orla", "question": "Second?"})),
        "Well.",
    ]
    await stage.say(room, "Ask twice")
    assert "1 times today" in script.prompts("branch")[-1]
    assert sum(kind == "branch" for kind, _ in script.asked) == 4
