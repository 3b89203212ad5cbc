"""D5: thresholds, the swap, and what a failed summary changes: nothing."""

from __future__ import annotations

import pytest

from coterie.eventstore import NewEvent
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.agents.maintenance import Compactor
from coterie.modes.desk.events import HistoryCompacted
from tests.modes.desk.conftest import Script, Stage


async def filled(stage: Stage, monkeypatch: pytest.MonkeyPatch, fullness: float) -> str:
    """A conversation of twenty lines, then a message that finds the model's window so full."""
    room = await stage.begin()
    for n in range(10):
        await stage.say(room, f"message {n}")
    assert len(stage.desk.queries.history(room)) == 20
    monkeypatch.setattr(Compactor, "fullness", lambda self, messages: fullness)
    await stage.say(room, "the last message", settle=False)
    return room


async def compactions(stage: Stage, room: str) -> list[HistoryCompacted]:
    return [e.payload for e in await stage.store.read(room) if isinstance(e.payload, HistoryCompacted)]


@pytest.mark.parametrize(
    ("fullness", "left", "asks"),
    [
        (0.7999, 22, False),
        (0.80, 16, True),
        (0.8499, 16, True),
        (0.85, 12, True),
        (0.9499, 12, True),
        (0.95, 12, False),
    ],
)
async def test_d5_the_thresholds_are_hit_exactly(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch, fullness: float, left: int, asks: bool
) -> None:
    room = await filled(stage, monkeypatch, fullness)
    await stage.settle()
    assert len(stage.desk.queries.history(room)) == left
    assert len(stage.desk.queries.archive(room)) == 22
    assert bool([kind for kind, _ in script.asked if kind == "compactor"]) == asks


async def test_d5_fullness_is_measured_by_the_models_real_window(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = ["Yes."] * 400
    for n in range(30):
        await stage.say(room, f"message {n} " + "word " * 300)
    messages = stage.desk.prompts.channel(stage.desk.queries.chat(room))
    assert 0 < stage.desk.compactor.fullness(messages) < 0.95
    assert await compactions(stage, room)
    assert len(stage.desk.queries.archive(room)) == 60


async def test_d5_the_swap_is_one_event_and_summaries_stack(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.digest = {"summary": "They spoke of paint.", "memories": [{"text": "Ana likes blue", "type": "preference"}]}
    room = await filled(stage, monkeypatch, 0.81)
    await stage.settle()
    (first,) = await compactions(stage, room)
    assert (first.summary, first.dropped) == ("They spoke of paint.", False)
    assert "message 0" not in str(stage.desk.queries.history(room))
    assert "Ana likes blue" in [memory.text for memory in stage.memory.browse(owner=stage.character)]
    script.digest = {"summary": "Then of doors."}
    await stage.say(room, "more")
    assert stage.desk.queries.summaries(room) == ["They spoke of paint.", "Then of doors."]
    await stage.say(room, "and more")
    assert "They spoke of paint.\n\nThen of doors." in script.prompts("channel")[-1]


@pytest.mark.parametrize(
    "digest",
    [
        RecordedCall(error=RecordedError(kind="BadRequest", what="No.", status=400)),
        {"summary": "  "},
        RecordedCall(say="not JSON at all"),
    ],
)
async def test_d5_a_failed_summary_changes_nothing(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch, digest: RecordedCall | dict[str, object]
) -> None:
    script.digest = digest
    room = await filled(stage, monkeypatch, 0.86)
    before = stage.desk.queries.archive(room)
    await stage.settle()
    assert await compactions(stage, room) == []
    assert stage.desk.queries.history(room)[: len(before)] == before
    assert stage.replies(room)[-1] == "All right."


async def test_d5_a_summariser_that_is_killed_changes_nothing_and_starts_again(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await filled(stage, monkeypatch, 0.86)
    for job in await stage.store.jobs.lease(["desk_message"], holder="t"):
        outcome = await stage.desk.handlers()[job.kind](job)
        assert outcome is not None
        await stage.store.jobs.complete(job, outcome.new_events, outcome.jobs)
    (job,) = await stage.store.jobs.lease(["desk_compact"], holder="t")
    assert await stage.desk.handlers()[job.kind](job) is not None
    stage.restart()
    assert len(stage.desk.queries.history(room)) == 22
    await stage.settle()
    assert len(stage.desk.queries.history(room)) == 12


async def test_d5_dropping_asks_no_model_and_leaves_a_marker(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await filled(stage, monkeypatch, 0.97)
    asked = len(script.asked)
    await stage.settle()
    (dropped,) = await compactions(stage, room)
    assert dropped.dropped
    assert "10 older messages" in script.prompts("channel")[-1]
    assert "message 1\n" not in script.prompts("channel")[-1]
    assert len(script.asked) == asked + 1


async def test_d5_hundreds_of_summaries_leave_room_for_what_is_said_now(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    for n in range(3):
        await stage.say(room, f"message {n}")
    for n in range(600):
        payload = HistoryCompacted(upto=0, summary=f"Summary {n}: {'they wrote to each other ' * 4}")
        await stage.store.append([NewEvent(room, payload)])
    messages = stage.desk.prompts.channel(stage.desk.queries.chat(room))
    assert stage.desk.compactor.fullness(messages) < 0.5
    assert "Summary 599:" in messages[0].text and "Summary 0:" not in messages[0].text
    assert "channel_recall" in messages[0].text


async def test_d5_what_is_being_answered_is_never_dropped(
    stage: Stage, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await stage.begin()
    monkeypatch.setattr(Compactor, "fullness", lambda self, messages: 1.0)
    for n in range(6):
        await stage.say(room, f"message {n}")
    told = [request.prompt.messages[-1].text for kind, request in script.asked if kind == "channel"]
    assert told == [f"message {n}" for n in range(6)], "it is in view however little else is"
