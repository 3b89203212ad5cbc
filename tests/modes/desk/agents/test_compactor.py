"""D5: thresholds of the compactor, the swap, and failed summaries."""

from __future__ import annotations

import pytest

from coterie.eventstore import NewEvent
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.agents.maintenance import Compactor
from coterie.modes.desk.events import HistoryCompacted
from tests.modes.desk.conftest import DeskHarness, Script


async def filled_conversation(harness: DeskHarness, monkeypatch: pytest.MonkeyPatch, fullness: float) -> str:
    """Twenty lines and one more message, with a fixed fullness of the context window."""
    room = await harness.begin()
    for n in range(10):
        await harness.say(room, f"message {n}")
    assert len(harness.desk.queries.history(room)) == 20
    monkeypatch.setattr(Compactor, "fullness", lambda self, messages: fullness)
    await harness.say(room, "the last message", settle=False)
    return room


async def compactions(harness: DeskHarness, room: str) -> list[HistoryCompacted]:
    return [e.payload for e in await harness.store.read(room) if isinstance(e.payload, HistoryCompacted)]


@pytest.mark.parametrize(
    ("fullness", "left", "calls_model"),
    [
        (0.7999, 22, False),
        (0.80, 16, True),
        (0.8499, 16, True),
        (0.85, 12, True),
        (0.9499, 12, True),
        (0.95, 12, False),
    ],
)
async def test_d5_thresholds_are_exact(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch, fullness: float, left: int, calls_model: bool
) -> None:
    room = await filled_conversation(harness, monkeypatch, fullness)
    await harness.settle()
    assert len(harness.desk.queries.history(room)) == left
    assert len(harness.desk.queries.archive(room)) == 22
    assert bool([kind for kind, _ in script.requests if kind == "compactor"]) == calls_model


async def test_d5_fullness_uses_the_context_window_of_the_model(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = ["Yes."] * 400
    for n in range(30):
        await harness.say(room, f"message {n} " + "word " * 300)
    messages = harness.desk.prompts.channel(harness.desk.queries.chat(room))
    assert 0 < harness.desk.compactor.fullness(messages) < 0.95
    assert await compactions(harness, room)
    assert len(harness.desk.queries.archive(room)) == 60


async def test_d5_the_swap_is_one_event_and_summaries_stack(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.summary = {"summary": "They spoke of paint.", "memories": [{"text": "Ana likes blue", "type": "preference"}]}
    room = await filled_conversation(harness, monkeypatch, 0.81)
    await harness.settle()
    (first,) = await compactions(harness, room)
    assert (first.summary, first.dropped) == ("They spoke of paint.", False)
    assert "message 0" not in str(harness.desk.queries.history(room))
    assert "Ana likes blue" in [memory.text for memory in harness.memory.browse(owner=harness.character)]
    script.summary = {"summary": "Then of windows."}
    await harness.say(room, "more")
    assert harness.desk.queries.summaries(room) == ["They spoke of paint.", "Then of windows."]
    await harness.say(room, "and more")
    assert "They spoke of paint.\n\nThen of windows." in script.prompts("channel")[-1]


@pytest.mark.parametrize(
    "summary",
    [
        RecordedCall(error=RecordedError(kind="BadRequest", what="No.", status=400)),
        {"summary": "  "},
        RecordedCall(say="not JSON at all"),
    ],
)
async def test_d5_a_failed_summary_changes_nothing(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch, summary: RecordedCall | dict[str, object]
) -> None:
    script.summary = summary
    room = await filled_conversation(harness, monkeypatch, 0.86)
    before = harness.desk.queries.archive(room)
    await harness.settle()
    assert await compactions(harness, room) == []
    assert harness.desk.queries.history(room)[: len(before)] == before
    assert harness.replies(room)[-1] == "All right."


async def test_d5_an_interrupted_summary_changes_nothing_and_is_repeated(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await filled_conversation(harness, monkeypatch, 0.86)
    for job in await harness.store.jobs.lease(["desk_message"], holder="t"):
        outcome = await harness.desk.handlers()[job.kind](job)
        assert outcome is not None
        await harness.store.jobs.complete(job, outcome.new_events, outcome.jobs)
    (job,) = await harness.store.jobs.lease(["desk_compact"], holder="t")
    assert await harness.desk.handlers()[job.kind](job) is not None
    harness.restart()
    assert len(harness.desk.queries.history(room)) == 22
    await harness.settle()
    assert len(harness.desk.queries.history(room)) == 12


async def test_d5_dropping_leaves_a_marker_without_a_model_call(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await filled_conversation(harness, monkeypatch, 0.97)
    calls_before = len(script.requests)
    await harness.settle()
    (dropped,) = await compactions(harness, room)
    assert dropped.dropped
    assert "10 older messages" in script.prompts("channel")[-1]
    assert "message 1\n" not in script.prompts("channel")[-1]
    assert len(script.requests) == calls_before + 1


async def test_d5_many_summaries_leave_space_for_the_conversation(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    for n in range(3):
        await harness.say(room, f"message {n}")
    for n in range(600):
        payload = HistoryCompacted(upto=0, summary=f"Summary {n}: {'they wrote to each other ' * 4}")
        await harness.store.append([NewEvent(room, payload)])
    messages = harness.desk.prompts.channel(harness.desk.queries.chat(room))
    assert harness.desk.compactor.fullness(messages) < 0.5
    assert "Summary 599:" in messages[0].text and "Summary 0:" not in messages[0].text
    assert "channel_recall" in messages[0].text


async def test_d5_the_message_being_answered_is_never_dropped(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await harness.begin()
    monkeypatch.setattr(Compactor, "fullness", lambda self, messages: 1.0)
    for n in range(6):
        await harness.say(room, f"message {n}")
    last_messages = [request.prompt.messages[-1].text for kind, request in script.requests if kind == "channel"]
    assert last_messages == [f"message {n}" for n in range(6)]
