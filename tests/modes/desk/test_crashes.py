"""D3, D21: a crash at any job, before or after its result was recorded: nothing lost, nothing said twice."""

from __future__ import annotations

import pytest

from coterie.llm.messages import CompletionRequest
from tests.modes.desk.conftest import Line, Script, Stage, calls

_JOBS = 14
"""More than the story below takes."""


def brain(kind: str, request: CompletionRequest) -> Line:
    """Says the same in the same situation, however often it is asked."""
    told = "\n".join(message.text for message in request.prompt.messages)
    if kind == "branch":
        return "It should be blue."
    if kind == "worker":
        if not any(message.role == "tool" for message in request.prompt.messages):
            return calls(("set_status", {"text": "mixing"}))
        return "Which blue?" if "Sky blue" not in told else calls(("finish", {"result": "Painted sky blue."}))
    last = request.prompt.messages[-1].text
    if "Paint the door" in last:
        paint = ("spawn_worker", {"task": "paint", "interactive": True})
        return calls(
            ("branch", {"thought": "Which colour?"}),
            paint,
            ("memory_save", {"text": "Ana wants the door painted"}),
            ("reply", {"text": "I will."}),
        )
    if "Which blue?" in last:
        (worker,) = {line.split("]")[0] for line in last.split("[") if line.startswith("w")}
        return calls(("route", {"worker": worker, "text": "Sky blue"}), ("reply", {"text": "I told it sky blue."}))
    return "It is done." if "Painted sky blue." in last else calls(("skip", {}))


async def run(stage: Stage, crash_at: int | None, *, recorded: bool) -> int:
    """Do the jobs one by one; at one of them the process dies, before or after its result is recorded."""
    done = 0
    while True:
        leased = await stage.store.jobs.lease(list(stage.desk.handlers()), holder="test")
        if not leased:
            stage.clock.advance(0.6)
            leased = await stage.store.jobs.lease(list(stage.desk.handlers()), holder="test")
        if not leased:
            return done
        job = leased[0]
        outcome = await stage.desk.handlers()[job.kind](job)
        dies = done == crash_at
        if recorded or not dies:
            await stage.store.jobs.complete(job, outcome.new_events if outcome else (), outcome.jobs if outcome else ())
        if dies:
            stage.restart()
        done += 1


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("crash_at", [None, *range(_JOBS)])
async def test_d21_a_crash_at_any_job_changes_nothing(
    stage: Stage, script: Script, crash_at: int | None, recorded: bool
) -> None:
    script.brain = brain
    room = await stage.begin()
    await stage.say(room, "Paint the door", settle=False)
    done = await run(stage, crash_at, recorded=recorded)
    assert done <= _JOBS
    assert [reply for reply in stage.replies(room) if reply] == ["I will.", "I told it sky blue.", "It is done."]
    assert sorted(stage.states(room)) == ["done", "done"]
    assert stage.desk.queries.unread_results(room) == []
    kept = [memory.text for memory in stage.memory.browse(owner=stage.character)]
    assert kept == ["Ana wants the door painted"]


async def test_d21_what_was_said_twice_with_one_key_is_answered_once(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    first = await stage.desk.send_message(room, "Hello", person="ana", key="matrix:1")
    assert await stage.desk.send_message(room, "Hello", person="ana", key="matrix:1") == first
    await stage.settle()
    assert await stage.desk.send_message(room, "Hello", person="ana", key="matrix:1") == first
    await stage.settle()
    assert len(stage.replies(room)) == 1
