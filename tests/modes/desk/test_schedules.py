"""D15: what a character does by itself: fresh each time, caught up once, switched off after three failures."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.errors import NoSuchProcess
from coterie.modes.desk.events import ScheduleRan, ScheduleTime
from coterie.modes.desk.queries import DeskSchedule
from coterie.modes.desk.schedules import ScheduleService
from tests.modes.desk.conftest import Script, Stage, calls

HOURLY = ScheduleTime(every_s=3600)
FAULT = RecordedCall(error=RecordedError(kind="BadRequest", what="No.", status=400))


def only(stage: Stage, room: str) -> DeskSchedule:
    (found,) = stage.desk.schedules.queries.all(room)
    return found


async def after(stage: Stage, hours: float) -> None:
    stage.clock.advance(hours * 3600)
    await stage.settle()


async def runs(stage: Stage, room: str) -> list[str]:
    return [e.payload.end for e in await stage.store.read(room) if isinstance(e.payload, ScheduleRan)]


async def test_d15_the_first_run_waits_and_each_is_fresh_and_told(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    await stage.say(room, "Hello")
    asked = len(script.asked)
    await stage.desk.schedules.set(room, "What is the weather?", HOURLY)
    await stage.settle()
    assert len(script.asked) == asked
    script.lines["channel"] = [calls(("reply", {"text": "It rains."})), "It shines."]
    await after(stage, 1.01)
    await after(stage, 1.01)
    assert stage.replies(room)[-2:] == ["It rains.", "It shines."]
    prompt = script.prompts("channel")[-1]
    assert "Hello" not in prompt and "What is the weather?" in prompt and "Mara gets things done." in prompt
    assert "schedule" not in {tool.name for tool in script.asked[-1][1].prompt.tools}
    assert await runs(stage, room) == ["told", "told"]


async def test_d15_empty_output_is_not_delivered(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    await stage.desk.schedules.set(room, "Anything new?", HOURLY)
    script.lines["channel"] = [calls(("skip", {})), calls(("skip", {"why": "no news"}))]
    await after(stage, 1.01)
    await after(stage, 1.01)
    assert stage.replies(room) == []
    assert await runs(stage, room) == ["nothing", "nothing"]


async def test_d15_a_sleeping_machine_catches_up_once(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    await stage.desk.schedules.set(room, "Tick", HOURLY)
    stage.store.close()
    stage.clock.advance(50 * 3600)
    stage.open()
    await stage.settle()
    assert await runs(stage, room) == ["told"]
    next_run = only(stage, room).next
    assert next_run is not None and next_run > stage.clock.now() + timedelta(minutes=59)


async def test_d15_three_failures_in_a_row_switch_it_off_visibly_and_a_success_resets(
    stage: Stage, script: Script
) -> None:
    room = await stage.begin()
    name = await stage.desk.schedules.set(room, "Look at the news", HOURLY)
    script.lines["channel"] = [FAULT, FAULT, "Fine.", FAULT, FAULT, FAULT]
    for failures in (1, 2, 0, 1, 2):
        await after(stage, 1.01)
        assert (only(stage, room).failures, only(stage, room).on) == (failures, True)
    await after(stage, 1.01)
    found = only(stage, room)
    assert (found.on, found.next) == (False, None) and "No." in found.why
    assert "failed 3 times in a row" in stage.replies(room)[-1]
    asked = len(script.asked)
    await after(stage, 10)
    assert len(script.asked) == asked
    await stage.desk.schedules.switch(room, name, on=True)
    script.lines["channel"] = ["Back again."]
    await after(stage, 1.01)
    assert stage.replies(room)[-1] == "Back again." and only(stage, room).failures == 0


async def test_d15_a_run_that_takes_too_long_is_a_failure(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await stage.begin()
    await stage.desk.schedules.set(room, "Tick", HOURLY)
    monkeypatch.setattr(stage.desk.schedules, "_patience_s", 0.01)

    async def slow(*_: object) -> str:
        await asyncio.sleep(30)
        return ""

    monkeypatch.setattr(stage.desk.schedules._channel, "run_schedule", slow)
    await after(stage, 1.01)
    assert await runs(stage, room) == ["failed"] and "longer than" in only(stage, room).last_output
    assert ScheduleService.__init__.__kwdefaults__ == {"patience_s": 120.0}


async def test_d15_a_run_that_always_dies_counts_as_a_failure(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    await stage.desk.schedules.set(room, "Tick", HOURLY)
    stage.clock.advance(3601)
    for _ in range(21):
        await stage.store.jobs.lease(["desk_schedule"], holder="crashes")
        stage.clock.advance(61)
    assert await stage.desk.stalled_processes.end_stalled() == 1
    assert await runs(stage, room) == ["failed"]
    assert only(stage, room).on
    await after(stage, 1.01)
    assert await runs(stage, room) == ["failed", "told"]


async def test_d15_once_runs_once_and_what_was_removed_does_not_run(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    soon = stage.clock.now() + timedelta(hours=1)
    await stage.desk.schedules.set(room, "Remind me", ScheduleTime(at=soon))
    gone = await stage.desk.schedules.set(room, "Never", HOURLY)
    await stage.desk.schedules.remove(room, gone)
    await after(stage, 1.01)
    await after(stage, 5)
    assert await runs(stage, room) == ["told"]
    assert (only(stage, room).on, only(stage, room).next) == (False, None)
    with pytest.raises(NoSuchProcess):
        await stage.desk.schedules.remove(room, gone)


async def test_d15_the_character_sets_and_cancels_schedules_itself(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    wanted = {"prompt": "Say good morning", "cron": "0 8 * * *", "zone": "Europe/Berlin"}
    bad = {"prompt": "x", "cron": "0 8 * * *", "every_minutes": 5}
    script.lines["channel"] = [
        calls(("schedule", bad), ("schedule", {"prompt": "y", "cron": "never"}), ("schedule", wanted)),
        "Every morning, then.",
    ]
    await stage.say(room, "Greet me every morning")
    told = script.prompts("channel")[-1]
    assert told.count("Error:") == 2
    name = only(stage, room).id
    script.lines["channel"] = [calls(("cancel", {"process": name}), ("reply", {"text": "No more."}))]
    await stage.say(room, "Stop that")
    assert f"[{name}] cron 0 8 * * *" in script.prompts("channel")[-1]
    assert stage.desk.schedules.queries.all(room) == []
