"""D8, D10: the bulletin is written when memory changed, and an idle day costs nothing."""

from __future__ import annotations

import pytest

from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.agents.maintenance import EVERY_S
from tests.modes.desk.conftest import Script, Stage


def asked(script: Script) -> int:
    return sum(kind == "cortex" for kind, _ in script.asked)


async def hours(stage: Stage, count: float) -> None:
    """So many hours of rounds, with everything that is due done in between."""
    for _ in range(int(count * 3600 / EVERY_S)):
        stage.clock.advance(EVERY_S)
        await stage.desk.maintenance.tick()
        await stage.worker.drain()


async def test_d10_twenty_four_idle_hours_make_no_model_call(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    stage.memory.add("Ana plans a garden", owner=stage.character, room=room)
    await stage.say(room, "Hello")
    await hours(stage, 0.1)
    before, events = len(script.asked), stage.store.reader.last_id()
    await hours(stage, 24)
    assert len(script.asked) == before
    assert stage.store.reader.last_id() == events, "an idle desk writes nothing either"


async def test_d8_the_bulletin_is_rebuilt_when_memory_changed_and_stands_in_the_prompt(
    stage: Stage, script: Script
) -> None:
    room = await stage.begin()
    script.lines["cortex"] = ["Ana plans a garden.", "Ana wants roses. " + "word " * 600]
    stage.memory.add("Ana plans a garden", owner=stage.character, room=room, type="goal")
    assert await stage.desk.maintenance.tick() == 1
    assert await stage.desk.maintenance.tick() == 0
    await stage.say(room, "Hello")
    assert "What you should know now:" in script.prompts("channel")[-1]
    assert "Ana plans a garden." in script.prompts("channel")[-1]
    stage.memory.add("Ana wants roses", owner=stage.character, room=room, type="decision")
    assert await stage.desk.maintenance.tick() == 1
    assert "roses" in script.prompts("cortex")[-1] and "memory_added" in script.prompts("cortex")[-1]
    assert len(stage.desk.bulletins.text(stage.desk.queries.chat(room)).split()) == 500
    stage.restart()
    assert await stage.desk.maintenance.tick() == 0
    assert asked(script) == 2


async def test_d8_what_others_may_not_hear_is_not_in_their_bulletin(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    other = await stage.desk.open(stage.character, "bo", "Work")
    both = (stage.character, "ana")
    stage.memory.add("Ana will leave the company", owner=stage.character, room=room, witnesses=both, private=True)
    stage.memory.add("Bo likes tea", owner=stage.character, room=other, witnesses=(stage.character, "bo"))
    assert await stage.desk.maintenance.tick() == 2
    told = script.prompts("cortex")
    assert sum("leave the company" in prompt for prompt in told) == 1
    assert await stage.desk.maintenance.tick() == 0


async def test_d8_three_failures_open_the_breaker(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await stage.begin()
    fault = RecordedCall(error=RecordedError(kind="BadRequest", what="No.", status=400))
    script.lines["cortex"] = [fault] * 3
    for number in range(9):
        stage.memory.add(f"Fact number {number}", owner=stage.character, room=room)
        stage.clock.advance(EVERY_S)
        await stage.desk.maintenance.tick()
    assert asked(script) == 3
    stage.clock.advance(31 * 60)
    stage.memory.add("One more fact", owner=stage.character, room=room)
    assert await stage.desk.maintenance.tick() == 1
    assert asked(script) == 4
