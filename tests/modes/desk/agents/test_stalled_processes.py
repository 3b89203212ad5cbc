"""D2: processes whose job was given up end visibly."""

from __future__ import annotations

import asyncio

from tests.modes.desk.conftest import DeskHarness, Script, calls


async def process_without_job(harness: DeskHarness, script: Script, kind: str) -> str:
    """A process whose job was leased until it was dead."""
    room = await harness.begin()
    tool = ("branch", {"thought": "x"}) if kind == "desk_branch" else ("spawn_worker", {"task": "x"})
    script.lines["channel"] = [calls(tool, ("reply", {"text": "Yes."})), "It was given up."]
    await harness.say(room, "Go", settle=False)
    for job in await harness.store.jobs.lease(["desk_message"], holder="t"):
        outcome = await harness.desk.handlers()[job.kind](job)
        assert outcome is not None
        await harness.store.jobs.complete(job, outcome.new_events, outcome.jobs)
    while not any(job.kind == kind for job in await harness.store.jobs.find(state="dead")):
        await harness.store.jobs.lease([kind], holder="t")
        harness.clock.advance(61)
    assert harness.states(room) == ["running"]
    return room


async def test_d2_a_process_with_a_dead_job_fails_and_is_reported(harness: DeskHarness, script: Script) -> None:
    for kind in ("desk_worker", "desk_branch"):
        room = await process_without_job(harness, script, kind)
        assert await harness.desk.stalled_processes.end_stalled() == 1
        assert await harness.desk.stalled_processes.end_stalled() == 0
        assert harness.states(room) == ["failed"]
        harness.clock.advance(0.6)
        await harness.settle()
        assert harness.replies(room) == ["Yes.", "It was given up."]


async def test_d2_running_and_waiting_processes_are_not_ended(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "x", "interactive": True}), ("reply", {"text": "Yes."}))]
    await harness.say(room, "Go", settle=False)
    assert await harness.desk.stalled_processes.end_stalled() == 0
    await harness.settle()
    assert await harness.desk.stalled_processes.end_stalled() == 0
    assert harness.states(room) == ["waiting"]


async def test_d2_stalled_processes_end_at_the_start(harness: DeskHarness, script: Script) -> None:
    room = await process_without_job(harness, script, "desk_worker")
    stop = asyncio.Event()
    task = asyncio.create_task(harness.desk.stalled_processes.run(stop))
    async with asyncio.timeout(20):
        while harness.states(room) != ["failed"]:
            await asyncio.sleep(0.01)
        stop.set()
        await task
