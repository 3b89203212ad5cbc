"""D3, D21: a crash at any job, before or after its result is stored, loses and repeats nothing."""

from __future__ import annotations

import pytest

from coterie.llm.messages import CompletionRequest
from tests.modes.desk.conftest import DeskHarness, Line, Script, calls

_JOBS = 14
"""More than the conversation below needs."""


def respond(kind: str, request: CompletionRequest) -> Line:
    """The same answer to the same prompt."""
    text = "\n".join(message.text for message in request.prompt.messages)
    if kind == "branch":
        return "It should be blue."
    if kind == "worker":
        if not any(message.role == "tool" for message in request.prompt.messages):
            return calls(("set_status", {"text": "mixing"}))
        return "Which blue?" if "Sky blue" not in text else calls(("finish", {"result": "Painted sky blue."}))
    last = request.prompt.messages[-1].text
    if "Paint the fence" in last:
        paint = ("spawn_worker", {"task": "paint", "interactive": True})
        return calls(
            ("branch", {"thought": "Which colour?"}),
            paint,
            ("memory_save", {"text": "Ana wants the fence painted"}),
            ("reply", {"text": "I will."}),
        )
    if "Which blue?" in last:
        (worker,) = {line.split("]")[0] for line in last.split("[") if line.startswith("w")}
        return calls(("route", {"worker": worker, "text": "Sky blue"}), ("reply", {"text": "I told it sky blue."}))
    return "It is done." if "Painted sky blue." in last else calls(("skip", {}))


async def run(harness: DeskHarness, crash_at: int | None, *, stored: bool) -> int:
    """Run the jobs one by one with a crash at one of them, before or after its result is stored."""
    done = 0
    while True:
        leased = await harness.store.jobs.lease(list(harness.desk.handlers()), holder="test")
        if not leased:
            harness.clock.advance(0.6)
            leased = await harness.store.jobs.lease(list(harness.desk.handlers()), holder="test")
        if not leased:
            return done
        job = leased[0]
        outcome = await harness.desk.handlers()[job.kind](job)
        crashes = done == crash_at
        if stored or not crashes:
            await harness.store.jobs.complete(
                job, outcome.new_events if outcome else (), outcome.jobs if outcome else ()
            )
        if crashes:
            harness.restart()
        done += 1


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("crash_at", [None, *range(_JOBS)])
async def test_d21_a_crash_at_any_job_changes_nothing(
    harness: DeskHarness, script: Script, crash_at: int | None, stored: bool
) -> None:
    script.respond = respond
    room = await harness.begin()
    await harness.say(room, "Paint the fence", settle=False)
    done = await run(harness, crash_at, stored=stored)
    assert done <= _JOBS
    assert [reply for reply in harness.replies(room) if reply] == ["I will.", "I told it sky blue.", "It is done."]
    assert sorted(harness.states(room)) == ["done", "done"]
    assert harness.desk.queries.unread_results(room) == []
    kept = [memory.text for memory in harness.memory.browse(owner=harness.character)]
    assert kept == ["Ana wants the fence painted"]


async def test_d21_a_repeated_message_with_the_same_key_is_answered_once(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    first = await harness.desk.send_message(room, "Hello", person="ana", key="matrix:1")
    assert await harness.desk.send_message(room, "Hello", person="ana", key="matrix:1") == first
    await harness.settle()
    assert await harness.desk.send_message(room, "Hello", person="ana", key="matrix:1") == first
    await harness.settle()
    assert len(harness.replies(room)) == 1
