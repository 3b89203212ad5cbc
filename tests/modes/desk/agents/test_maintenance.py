"""D8, D10: bulletins are rewritten when memory changed, and idle time costs nothing."""

from __future__ import annotations

import pytest

from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.agents.maintenance import INTERVAL_S
from tests.modes.desk.conftest import DeskHarness, Script


def count_requests(script: Script) -> int:
    return sum(kind == "cortex" for kind, _ in script.requests)


async def hours(harness: DeskHarness, count: float) -> None:
    """Run maintenance and due jobs for some hours."""
    for _ in range(int(count * 3600 / INTERVAL_S)):
        harness.clock.advance(INTERVAL_S)
        await harness.desk.maintenance.tick()
        await harness.worker.drain()


async def test_d10_twenty_four_idle_hours_make_no_model_call(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    harness.memory.add("Ana plans a garden", owner=harness.character, room=room)
    await harness.say(room, "Hello")
    await hours(harness, 0.1)
    before, events = len(script.requests), harness.store.reader.last_id()
    await hours(harness, 24)
    assert len(script.requests) == before
    assert harness.store.reader.last_id() == events


async def test_d8_the_bulletin_is_rewritten_after_a_change_and_is_in_the_prompt(
    harness: DeskHarness, script: Script
) -> None:
    room = await harness.begin()
    script.lines["cortex"] = ["Ana plans a garden.", "Ana wants roses. " + "word " * 600]
    harness.memory.add("Ana plans a garden", owner=harness.character, room=room, type="goal")
    assert await harness.desk.maintenance.tick() == 1
    assert await harness.desk.maintenance.tick() == 0
    await harness.say(room, "Hello")
    assert "What you should know now:" in script.prompts("channel")[-1]
    assert "Ana plans a garden." in script.prompts("channel")[-1]
    harness.memory.add("Ana wants roses", owner=harness.character, room=room, type="decision")
    assert await harness.desk.maintenance.tick() == 1
    assert "roses" in script.prompts("cortex")[-1] and "memory_added" in script.prompts("cortex")[-1]
    assert len(harness.desk.bulletins.text(harness.desk.queries.chat(room)).split()) == 500
    harness.restart()
    assert await harness.desk.maintenance.tick() == 0
    assert count_requests(script) == 2


async def test_d8_a_bulletin_contains_only_what_its_person_may_hear(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    other = await harness.desk.open(harness.character, "bo", "Work")
    both = (harness.character, "ana")
    harness.memory.add("Ana will leave the company", owner=harness.character, room=room, witnesses=both, private=True)
    harness.memory.add("Bo likes tea", owner=harness.character, room=other, witnesses=(harness.character, "bo"))
    assert await harness.desk.maintenance.tick() == 2
    assert sum("leave the company" in prompt for prompt in script.prompts("cortex")) == 1
    assert await harness.desk.maintenance.tick() == 0


async def test_d8_three_failures_pause_maintenance(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await harness.begin()
    fault = RecordedCall(error=RecordedError(kind="BadRequest", what="No.", status=400))
    script.lines["cortex"] = [fault] * 3
    for number in range(9):
        harness.memory.add(f"Fact number {number}", owner=harness.character, room=room)
        harness.clock.advance(INTERVAL_S)
        await harness.desk.maintenance.tick()
    assert count_requests(script) == 3
    harness.clock.advance(31 * 60)
    harness.memory.add("One more fact", owner=harness.character, room=room)
    assert await harness.desk.maintenance.tick() == 1
    assert count_requests(script) == 4
