"""D1 to D4: the channel, branches and workers together."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest

from coterie.llm import Role
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.errors import NoSuchProcess
from coterie.modes.desk.events import ResultsInjected
from coterie.modes.desk.jobs import WAKE_JOB
from tests.modes.desk.conftest import DeskHarness, Script, calls

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")


async def test_d1_plain_text_and_the_reply_tool_both_answer(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = ["Good morning.", calls(("reply", {"text": "Gladly."}))]
    await harness.say(room, "Hello")
    await harness.say(room, "Will you help?")
    assert harness.replies(room) == ["Good morning.", "Gladly."]
    assert len(script.requests) == 2


async def test_d1_a_message_causes_at_most_five_model_turns(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("cancel", {"process": "unknown"})) for _ in range(9)]
    await harness.say(room, "Hello")
    assert len(script.requests) == 5
    assert len(harness.replies(room)) == 1


@needs_bwrap
async def test_d1_from_message_over_worker_to_result(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [
        calls(("reply", {"text": "I am on it."}), ("spawn_worker", {"task": "Count the words of note.txt"})),
        "There are three words.",
    ]
    script.lines["worker"] = [
        calls(
            ("file", {"action": "write", "path": "note.txt", "text": "one two three"}),
            ("set_status", {"text": "counting"}),
        ),
        calls(("shell", {"command": "wc -w < note.txt"})),
        "It has 3 words.",
    ]
    await harness.say(room, "How many words has the note?")
    assert harness.replies(room) == ["I am on it.", "There are three words."]
    (worker,) = harness.desk.queries.processes(room)
    assert (worker.state, worker.calls, worker.status, worker.result) == ("done", 3, "counting", "It has 3 words.")
    assert "\n3\n" in script.prompts("worker")[-1]
    assert "It has 3 words." in script.prompts("channel")[-1]
    assert (harness.desk.workspace(room).folder / "note.txt").read_text() == "one two three"


async def test_a_branch_sees_the_conversation_and_returns_its_conclusion(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    harness.memory.add("Ana is allergic to walnuts", owner=harness.character, room=room)
    script.lines["channel"] = [
        calls(("branch", {"thought": "What may Ana eat?"}), ("reply", {"text": "Let me think."})),
        "No walnuts for you.",
    ]
    script.lines["branch"] = [
        calls(("memory_recall", {"question": "What must Ana not eat?"}), ("memory_save", {"text": "Ana plans a cake"})),
        "Ana must avoid walnuts.",
    ]
    await harness.say(room, "I bake a cake")
    assert harness.replies(room) == ["Let me think.", "No walnuts for you."]
    assert "I bake a cake" in script.prompts("branch")[0]
    assert "allergic to walnuts" in script.prompts("branch")[1]
    (injected,) = [e.payload for e in await harness.store.read(room) if isinstance(e.payload, ResultsInjected)]
    assert "Ana must avoid walnuts." in injected.text
    assert "Ana plans a cake" in [memory.text for memory in harness.memory.browse(owner=harness.character)]


async def test_at_most_five_branches_run_at_once(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    six = [("branch", {"thought": f"thing {n}"}) for n in range(6)]
    script.lines["channel"] = [calls(*six), "Thinking."]
    await harness.say(room, "Think!", settle=False)
    leased = await harness.store.jobs.lease(["desk_message"], holder="t")
    outcome = await harness.desk.handlers()["desk_message"](leased[0])
    assert outcome is not None
    assert sum(event.payload.kind == "desk_branch_started" for event in outcome.new_events) == 5


async def test_d3_results_within_the_debounce_time_wake_the_channel_once(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [
        calls(*(("spawn_worker", {"task": f"task {n}"}) for n in range(3)), ("reply", {"text": "Started."})),
        "All three are done.",
    ]
    await harness.say(room, "Do three things", settle=False)
    await harness.worker.drain()
    assert harness.replies(room) == ["Started."]
    assert harness.states(room) == ["done"] * 3
    harness.clock.advance(0.49)
    assert await harness.worker.drain() == 0
    harness.clock.advance(0.02)
    await harness.settle()
    assert harness.replies(room) == ["Started.", "All three are done."]


async def test_d3_at_most_three_wakes_follow_a_message_and_no_result_is_lost(
    harness: DeskHarness, script: Script
) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "first"}), ("reply", {"text": "Started."}))]
    script.lines["channel"] += [
        calls(("spawn_worker", {"task": f"after {n}"}), ("reply", {"text": "More."})) for n in range(9)
    ]
    await harness.say(room, "Go")
    assert harness.replies(room) == ["Started.", "More.", "More.", "More."]
    assert [process.id for process in harness.desk.queries.unread_results(room)]
    script.lines["channel"] = ["I see."]
    script.lines["worker"] = []
    await harness.say(room, "And?")
    assert harness.replies(room)[-1] == "I see."
    assert harness.desk.queries.unread_results(room) == []


async def test_d3_waiting_messages_are_answered_together(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    for n in range(30):
        await harness.say(room, f"message {n}", settle=False)
    script.lines["channel"] = ["One answer."]
    await harness.settle()
    assert harness.replies(room) == ["One answer."]
    assert all(f"message {n}" in script.prompts("channel")[0] for n in range(30))


async def test_d2_an_interactive_worker_waits_for_a_follow_up(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [
        calls(("spawn_worker", {"task": "draft", "interactive": True}), ("reply", {"text": "Yes."}))
    ]
    script.lines["worker"] = ["Formal or friendly?"]
    await harness.say(room, "Draft a letter")
    (worker,) = harness.desk.queries.processes(room)
    assert (worker.state, worker.result) == ("waiting", "Formal or friendly?")
    script.lines["channel"] = [
        calls(("route", {"worker": worker.id, "text": "Friendly"}), ("reply", {"text": "Told it."}))
    ]
    script.lines["worker"] = [calls(("finish", {"result": "Dear friend"}))]
    await harness.say(room, "Friendly, please")
    assert harness.desk.queries.process(room, worker.id).state == "done"
    assert script.prompts("worker")[-1].endswith("Formal or friendly?\nFriendly")
    with pytest.raises(NoSuchProcess, match="done"):
        await harness.desk.processes.send_follow_up(room, worker.id, "more")


async def test_d2_cancel_works_in_every_state(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    both: list[tuple[str, dict[str, object]]] = [
        ("spawn_worker", {"task": "a", "interactive": True}),
        ("spawn_worker", {"task": "b"}),
    ]
    script.lines["channel"] = [calls(*both, ("reply", {"text": "Yes."}))]
    await harness.say(room, "Go", settle=False)
    await harness.worker.drain()
    waiting, done = sorted(harness.desk.queries.processes(room), key=lambda process: process.task)
    assert (waiting.state, done.state) == ("waiting", "done")
    assert await harness.desk.processes.cancel(room, waiting.id)
    assert not await harness.desk.processes.cancel(room, waiting.id)
    assert not await harness.desk.processes.cancel(room, done.id)
    assert harness.desk.queries.process(room, waiting.id).state == "cancelled"


@needs_bwrap
async def test_d2_cancel_kills_a_running_command(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "sleep"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("shell", {"command": "touch started; sleep 250; touch ended", "timeout_s": 300}))]
    await harness.say(room, "Go", settle=False)
    working = asyncio.create_task(harness.worker.drain())
    folder = harness.desk.workspace(room).folder
    async with asyncio.timeout(20):
        while not (folder / "started").exists():
            await asyncio.sleep(0.02)
    (worker,) = harness.desk.queries.processes(room)
    await harness.desk.processes.cancel(room, worker.id)
    async with asyncio.timeout(20):
        await working
    assert harness.states(room) == ["cancelled"]
    await harness.settle()
    assert harness.replies(room) == ["Yes."]


async def test_d2_a_worker_has_at_most_fifty_turns(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "endless"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("set_status", {"text": "still at it"})) for _ in range(70)]
    await harness.say(room, "Go")
    (worker,) = harness.desk.queries.processes(room)
    assert (worker.state, worker.steps) == ("failed", 50)
    assert "50 turns" in worker.result


async def test_a_model_error_fails_the_worker_and_is_reported(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    broken = RecordedCall(error=RecordedError(kind="BadRequest", what="The key is wrong.", status=400))
    script.lines["channel"] = [calls(("spawn_worker", {"task": "x"}), ("reply", {"text": "Yes."})), broken]
    script.lines["worker"] = [broken]
    await harness.say(room, "Go")
    (worker,) = harness.desk.queries.processes(room)
    assert worker.state == "failed"
    assert "The key is wrong." in worker.result
    assert harness.replies(room) == ["Yes.", ""]


async def test_d18_a_reply_with_a_secret_is_replaced(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    script.lines["channel"] = [secret, calls(("reply", {"text": secret.encode().hex()})), "I may not say."]
    await harness.say(room, "What is the token?")
    assert harness.replies(room) == ["I may not say."]


async def test_d1_without_an_answer_the_reply_says_why(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("cancel", {"process": "unknown"})) for _ in range(5)]
    await harness.say(room, "Hello")
    (unfinished,) = harness.replies(room)
    assert "5 steps" in unfinished
    script.lines["channel"] = ["It is ghp_0123456789abcdefghijABCDEFGHIJ012345" for _ in range(5)]
    await harness.say(room, "What is the key?")
    assert "confidential" in harness.replies(room)[-1]
    key = {"text": "ghp_0123456789abcdefghijABCDEFGHIJ012345"}
    script.lines["channel"] = [calls(("reply", key)), *(calls(("cancel", {"process": "unknown"})) for _ in range(4))]
    await harness.say(room, "And now?")
    assert "confidential" in harness.replies(room)[-1]
    script.lines["channel"] = [RecordedCall(error=RecordedError(kind="KeyRejected", what="It is down."))]
    await harness.say(room, "And now?")
    failed = harness.desk.replies.find(room, harness.desk.queries.newest_message(room) or "")
    assert failed is not None
    assert (failed.text, failed.state) == ("", "truncated")
    assert "down" in failed.why


async def test_a_message_is_the_last_of_the_prompt_that_answers_it(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("branch", {"thought": "walnuts"}), ("reply", {"text": "Let me think."}))]
    script.lines["branch"] = ["They are nuts."]
    await harness.say(room, "Are walnuts nuts?", settle=False)
    await harness.worker.drain()  # the branch has ended, and its result waits to be read
    await harness.say(room, "And almonds?")
    asked = next(r for kind, r in reversed(script.requests) if kind == "channel" and "almonds" in str(r.prompt))
    texts = [message.text for message in asked.prompt.messages]
    assert any("They are nuts." in text for text in texts)
    assert texts[-1] == "And almonds?"


async def test_d3_a_message_that_arrives_while_a_result_is_read_is_answered_next(
    harness: DeskHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("branch", {"thought": "walnuts"}), ("reply", {"text": "Let me think."}))]
    await harness.say(room, "Are walnuts nuts?", settle=False)
    ask = harness.models.ask
    sent: list[str] = []

    async def ask_while_a_message_arrives(role: Any, prompt: Any, **options: Any) -> Any:
        if role is Role.CHANNEL and "Results of your own work" in prompt.messages[-1].text and not sent:
            sent.append(await harness.say(room, "And almonds?", settle=False))
        return await ask(role, prompt, **options)

    monkeypatch.setattr(harness.models, "ask", ask_while_a_message_arrives)
    await harness.settle()
    texts = [message.text for message in script.requests[-1][1].prompt.messages]
    assert texts[-1] == "And almonds?"
    assert harness.desk.replies.find(room, sent[0]) is not None


async def test_d3_a_result_waits_for_the_run_of_a_message(harness: DeskHarness, script: Script) -> None:
    room = await harness.begin()
    script.lines["channel"] = [calls(("branch", {"thought": "walnuts"}), ("reply", {"text": "Let me think."}))]
    await harness.say(room, "Are walnuts nuts?", settle=False)
    while not harness.desk.queries.unread_results(room):
        await harness.worker.drain()
    harness.clock.advance(0.6)
    turn = await harness.say(room, "And almonds?", settle=False)
    (wake,) = await harness.store.jobs.lease([WAKE_JOB], holder="test", seconds=60)
    assert await harness.desk.handlers()[WAKE_JOB](wake) is None
    await harness.settle()
    channel = [request.prompt for kind, request in script.requests if kind == "channel"]
    assert len(channel) == 2
    assert any("Results of your own work" in message.text for message in channel[-1].messages)
    assert harness.desk.replies.find(room, turn) is not None


async def test_l7_a_worker_and_a_branch_carry_a_type_that_picks_their_model(
    harness: DeskHarness, script: Script
) -> None:
    room = await harness.begin()
    vars(harness.models.settings)["tasks"] = {"coding": ("embedded/coder",), "research": ("embedded/thinker",)}
    script.lines["channel"] = [
        calls(
            ("spawn_worker", {"task": "write it", "type": "coding"}),
            ("branch", {"thought": "why?", "type": "research"}),
            ("spawn_worker", {"task": "another", "type": "no-such-type"}),
            ("reply", {"text": "I am on it."}),
        )
    ]
    await harness.say(room, "Do it.")
    asked = [kind for kind, _ in script.requests]
    assert asked.count("coder") == 1
    assert asked.count("thinker") == 1
    assert asked.count("worker") == 1  # a type without a model uses the role's
    tool = next(tool for tool in script.requests[0][1].prompt.tools if tool.name == "spawn_worker")
    assert tool.description.endswith("Types: coding, research.")
