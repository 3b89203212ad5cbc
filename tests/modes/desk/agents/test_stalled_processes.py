"""D2: what nobody works on any more ends, visibly."""

from __future__ import annotations

import asyncio

from tests.modes.desk.conftest import Script, Stage, calls


async def given_up(stage: Stage, script: Script, kind: str) -> str:
    """A process whose job was started again and again and never finished."""
    room = await stage.begin()
    wanted = ("branch", {"thought": "x"}) if kind == "desk_branch" else ("spawn_worker", {"task": "x"})
    script.lines["channel"] = [calls(wanted, ("reply", {"text": "Yes."})), "It was given up."]
    await stage.say(room, "Go", settle=False)
    for job in await stage.store.jobs.lease(["desk_message"], holder="t"):
        outcome = await stage.desk.handlers()[job.kind](job)
        assert outcome is not None
        await stage.store.jobs.complete(job, outcome.new_events, outcome.jobs)
    while not any(job.kind == kind for job in await stage.store.jobs.find(state="dead")):
        await stage.store.jobs.lease([kind], holder="t")
        stage.clock.advance(61)
    assert stage.states(room) == ["running"]
    return room


async def test_d2_a_process_whose_job_died_fails_and_the_person_hears_of_it(stage: Stage, script: Script) -> None:
    for kind in ("desk_worker", "desk_branch"):
        room = await given_up(stage, script, kind)
        assert await stage.desk.stalled_processes.end_stalled() == 1
        assert await stage.desk.stalled_processes.end_stalled() == 0
        assert stage.states(room) == ["failed"]
        stage.clock.advance(0.6)
        await stage.settle()
        assert stage.replies(room) == ["Yes.", "It was given up."]


async def test_d2_one_that_is_at_work_or_waits_is_left_alone(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "x", "interactive": True}), ("reply", {"text": "Yes."}))]
    await stage.say(room, "Go", settle=False)
    assert await stage.desk.stalled_processes.end_stalled() == 0
    await stage.settle()
    assert await stage.desk.stalled_processes.end_stalled() == 0
    assert stage.states(room) == ["waiting"]


async def test_d2_the_watch_acts_when_it_starts_and_stops_when_told(stage: Stage, script: Script) -> None:
    room = await given_up(stage, script, "desk_worker")
    stop = asyncio.Event()
    watching = asyncio.create_task(stage.desk.stalled_processes.run(stop))
    async with asyncio.timeout(20):
        while stage.states(room) != ["failed"]:
            await asyncio.sleep(0.01)
        stop.set()
        await watching
