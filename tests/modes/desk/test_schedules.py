"""D15: schedules run separately, catch up once and are switched off after three failures."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.errors import NoSuchProcess
from coterie.modes.desk.events import ScheduleRan, ScheduleTime
from coterie.modes.desk.queries import DeskSchedule
from coterie.modes.desk.schedules import ScheduleService
from tests.modes.desk.conftest import DeskHarness, Script, calls

HOURLY = ScheduleTime(every_s=3600)
FAULT = RecordedCall(error=RecordedError(kind="BadRequest", what="No.", status=400))


def only(harness: DeskHarness, room: str) -> DeskSchedule:
    (found,) = harness.desk.schedules.queries.all(room)
    return found


async def advance(harness: DeskHarness, hours: float) -> None:
    harness.clock.advance(hours * 3600)
    await harness.settle()


async def runs(harness: DeskHarness, room: str) -> list[str]:
    return [e.payload.end for e in await harness.store.read(room) if isinstance(e.payload, ScheduleRan)]


async def test_d15_runs_start_after_the_interval_without_the_conversation(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    await harness.say(room, "Hello")
    calls_before = len(script.requests)
    await harness.desk.schedules.set(room, "What is the weather?", HOURLY)
    await harness.settle()
    assert len(script.requests) == calls_before
    script.lines["channel"] = [calls(("reply", {"text": "It rains."})), "It shines."]
    await advance(harness, 1.01)
    await advance(harness, 1.01)
    assert harness.replies(room)[-2:] == ["It rains.", "It shines."]
    prompt = script.prompts("channel")[-1]
    assert "Hello" not in prompt and "What is the weather?" in prompt and "Mara gets things done." in prompt
    assert "schedule" not in {tool.name for tool in script.requests[-1][1].prompt.tools}
    assert await runs(harness, room) == ["replied", "replied"]


async def test_d15_empty_output_is_not_delivered(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    await harness.desk.schedules.set(room, "Anything new?", HOURLY)
    script.lines["channel"] = [calls(("skip", {})), calls(("skip", {"why": "no news"}))]
    await advance(harness, 1.01)
    await advance(harness, 1.01)
    assert harness.replies(room) == []
    assert await runs(harness, room) == ["nothing", "nothing"]


async def test_d15_missed_runs_are_replaced_by_one(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    await harness.desk.schedules.set(room, "Tick", HOURLY)
    harness.store.close()
    harness.clock.advance(50 * 3600)
    harness.open()
    await harness.settle()
    assert await runs(harness, room) == ["replied"]
    next_run = only(harness, room).next
    assert next_run is not None and next_run > harness.clock.now() + timedelta(minutes=59)


async def test_d15_three_failures_in_a_row_switch_it_off(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    name = await harness.desk.schedules.set(room, "Look at the news", HOURLY)
    script.lines["channel"] = [FAULT, FAULT, "Fine.", FAULT, FAULT, FAULT]
    for failures in (1, 2, 0, 1, 2):
        await advance(harness, 1.01)
        assert (only(harness, room).failures, only(harness, room).on) == (failures, True)
    await advance(harness, 1.01)
    found = only(harness, room)
    assert (found.on, found.next) == (False, None) and "No." in found.why
    assert "failed 3 times in a row" in harness.replies(room)[-1]
    calls_before = len(script.requests)
    await advance(harness, 10)
    assert len(script.requests) == calls_before
    await harness.desk.schedules.switch(room, name, on=True)
    script.lines["channel"] = ["Back again."]
    await advance(harness, 1.01)
    assert harness.replies(room)[-1] == "Back again." and only(harness, room).failures == 0


async def test_d15_a_timeout_is_a_failure(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await harness.begin()
    await harness.desk.schedules.set(room, "Tick", HOURLY)
    monkeypatch.setattr(harness.desk.schedules, "_timeout_s", 0.01)

    async def slow(*_: object) -> str:
        await asyncio.sleep(30)
        return ""

    monkeypatch.setattr(harness.desk.schedules._channel, "run_schedule", slow)
    await advance(harness, 1.01)
    assert await runs(harness, room) == ["failed"] and "longer than" in only(harness, room).last_output
    assert ScheduleService.__init__.__kwdefaults__ == {"timeout_s": 120.0}


async def test_d15_a_dead_job_is_a_failure(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    await harness.desk.schedules.set(room, "Tick", HOURLY)
    harness.clock.advance(3601)
    for _ in range(21):
        await harness.store.jobs.lease(["desk_schedule"], holder="crashes")
        harness.clock.advance(61)
    assert await harness.desk.stalled_processes.end_stalled() == 1
    assert await runs(harness, room) == ["failed"]
    assert only(harness, room).on
    await advance(harness, 1.01)
    assert await runs(harness, room) == ["failed", "replied"]


async def test_d15_once_runs_once_and_removed_schedules_do_not_run(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    soon = harness.clock.now() + timedelta(hours=1)
    await harness.desk.schedules.set(room, "Remind me", ScheduleTime(at=soon))
    removed = await harness.desk.schedules.set(room, "Never", HOURLY)
    await harness.desk.schedules.remove(room, removed)
    await advance(harness, 1.01)
    await advance(harness, 5)
    assert await runs(harness, room) == ["replied"]
    assert (only(harness, room).on, only(harness, room).next) == (False, None)
    with pytest.raises(NoSuchProcess):
        await harness.desk.schedules.remove(room, removed)


async def test_d15_the_character_sets_and_cancels_schedules(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    valid = {"prompt": "Say good morning", "cron": "0 8 * * *", "zone": "Europe/Berlin"}
    invalid = {"prompt": "x", "cron": "0 8 * * *", "every_minutes": 5}
    script.lines["channel"] = [
        calls(("schedule", invalid), ("schedule", {"prompt": "y", "cron": "never"}), ("schedule", valid)),
        "Every morning, then.",
    ]
    await harness.say(room, "Greet me every morning")
    assert script.prompts("channel")[-1].count("Error:") == 2
    name = only(harness, room).id
    script.lines["channel"] = [calls(("cancel", {"process": name}), ("reply", {"text": "No more."}))]
    await harness.say(room, "Stop that")
    assert f"[{name}] cron 0 8 * * *" in script.prompts("channel")[-1]
    assert harness.desk.schedules.queries.all(room) == []
