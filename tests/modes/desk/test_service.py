"""D1 to D4: talking while thought and work go on, and what comes of them."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.desk.errors import NoSuchProcess
from coterie.modes.desk.events import ResultsInjected
from tests.modes.desk.conftest import Script, Stage, calls

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")


async def test_d1_a_message_is_answered_in_plain_words_or_by_reply(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = ["Good morning.", calls(("reply", {"text": "Gladly."}))]
    await stage.say(room, "Hello")
    await stage.say(room, "Will you help?")
    assert stage.replies(room) == ["Good morning.", "Gladly."]
    assert len(script.asked) == 2


async def test_d1_a_message_takes_five_turns_at_most(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = [calls(("cancel", {"process": "nobody"})) for _ in range(9)]
    await stage.say(room, "Hello")
    assert len(script.asked) == 5
    assert len(stage.replies(room)) == 1


@needs_bwrap
async def test_d1_the_whole_loop_from_message_to_result(stage: Stage, script: Script) -> None:
    room = await stage.begin()
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
    await stage.say(room, "How many words has the note?")
    assert stage.replies(room) == ["I am on it.", "There are three words."]
    (worker,) = stage.desk.queries.processes(room)
    assert (worker.state, worker.calls, worker.status, worker.result) == ("done", 3, "counting", "It has 3 words.")
    assert "\n3\n" in script.prompts("worker")[-1]
    assert "It has 3 words." in script.prompts("channel")[-1]
    assert (stage.desk.workspace_folder(stage.character) / "note.txt").read_text() == "one two three"


async def test_a_branch_thinks_on_a_clone_and_only_its_conclusion_comes_back(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    stage.memory.add("Ana is allergic to walnuts", owner=stage.character, room=room)
    script.lines["channel"] = [
        calls(("branch", {"thought": "What may Ana eat?"}), ("reply", {"text": "Let me think."})),
        "No walnuts for you.",
    ]
    script.lines["branch"] = [
        calls(("memory_recall", {"question": "What must Ana not eat?"}), ("memory_save", {"text": "Ana plans a cake"})),
        "Ana must avoid walnuts.",
    ]
    await stage.say(room, "I bake a cake")
    assert stage.replies(room) == ["Let me think.", "No walnuts for you."]
    assert "I bake a cake" in script.prompts("branch")[0]
    assert "allergic to walnuts" in script.prompts("branch")[1]
    (injected,) = [e.payload for e in await stage.store.read(room) if isinstance(e.payload, ResultsInjected)]
    assert "Ana must avoid walnuts." in injected.text
    assert "Ana plans a cake" in [memory.text for memory in stage.memory.browse(owner=stage.character)]


async def test_five_branches_at_once_and_not_one_more(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    six = [("branch", {"thought": f"thing {n}"}) for n in range(6)]
    script.lines["channel"] = [calls(*six), "Thinking."]
    await stage.say(room, "Think!", settle=False)
    leased = await stage.store.jobs.lease(["desk_message"], holder="t")
    outcome = await stage.desk.handlers()["desk_message"](leased[0])
    assert outcome is not None
    assert sum(draft.payload.kind == "desk_branch_started" for draft in outcome.new_events) == 5


async def test_d3_results_that_come_together_wake_once(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = [
        calls(*(("spawn_worker", {"task": f"task {n}"}) for n in range(3)), ("reply", {"text": "Started."})),
        "All three are done.",
    ]
    await stage.say(room, "Do three things", settle=False)
    await stage.worker.drain()
    assert stage.replies(room) == ["Started."]
    assert stage.states(room) == ["done"] * 3
    stage.clock.advance(0.49)
    assert await stage.worker.drain() == 0
    stage.clock.advance(0.02)
    await stage.settle()
    assert stage.replies(room) == ["Started.", "All three are done."]


async def test_d3_a_message_is_followed_by_three_wakes_at_most_and_nothing_is_lost(
    stage: Stage, script: Script
) -> None:
    room = await stage.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "first"}), ("reply", {"text": "Started."}))]
    script.lines["channel"] += [
        calls(("spawn_worker", {"task": f"after {n}"}), ("reply", {"text": "More."})) for n in range(9)
    ]
    await stage.say(room, "Go")
    assert stage.replies(room) == ["Started.", "More.", "More.", "More."]
    assert [process.id for process in stage.desk.queries.unread_results(room)]
    script.lines["channel"] = ["I see."]
    script.lines["worker"] = []
    await stage.say(room, "And?")
    assert stage.replies(room)[-1] == "I see."
    assert stage.desk.queries.unread_results(room) == []


async def test_d3_old_messages_are_answered_together(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    for n in range(30):
        await stage.say(room, f"message {n}", settle=False)
    script.lines["channel"] = ["One answer."]
    await stage.settle()
    assert stage.replies(room) == ["One answer."]
    assert all(f"message {n}" in script.prompts("channel")[0] for n in range(30))


async def test_d2_an_interactive_worker_waits_is_told_and_goes_on(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = [
        calls(("spawn_worker", {"task": "draft", "interactive": True}), ("reply", {"text": "Yes."}))
    ]
    script.lines["worker"] = ["Formal or friendly?"]
    await stage.say(room, "Draft a letter")
    (worker,) = stage.desk.queries.processes(room)
    assert (worker.state, worker.result) == ("waiting", "Formal or friendly?")
    script.lines["channel"] = [
        calls(("route", {"worker": worker.id, "text": "Friendly"}), ("reply", {"text": "Told it."}))
    ]
    script.lines["worker"] = [calls(("finish", {"result": "Dear friend"}))]
    await stage.say(room, "Friendly, please")
    assert stage.desk.queries.process(room, worker.id).state == "done"
    assert script.prompts("worker")[-1].endswith("Formal or friendly?\nFriendly")
    with pytest.raises(NoSuchProcess, match="done"):
        await stage.desk.processes.send_follow_up(room, worker.id, "more")


async def test_d2_cancel_works_while_it_runs_while_it_waits_and_afterwards(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    both: list[tuple[str, dict[str, object]]] = [
        ("spawn_worker", {"task": "a", "interactive": True}),
        ("spawn_worker", {"task": "b"}),
    ]
    script.lines["channel"] = [calls(*both, ("reply", {"text": "Yes."}))]
    await stage.say(room, "Go", settle=False)
    await stage.worker.drain()
    waiting, done = sorted(stage.desk.queries.processes(room), key=lambda process: process.task)
    assert (waiting.state, done.state) == ("waiting", "done")
    assert await stage.desk.processes.cancel(room, waiting.id)
    assert not await stage.desk.processes.cancel(room, waiting.id)
    assert not await stage.desk.processes.cancel(room, done.id)
    assert stage.desk.queries.process(room, waiting.id).state == "cancelled"


@needs_bwrap
async def test_d2_cancel_ends_a_command_that_is_running(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "sleep"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("shell", {"command": "touch begun; sleep 250; touch ended", "timeout_s": 300}))]
    await stage.say(room, "Go", settle=False)
    working = asyncio.create_task(stage.worker.drain())
    folder = stage.desk.workspace_folder(stage.character)
    async with asyncio.timeout(20):
        while not (folder / "begun").exists():
            await asyncio.sleep(0.02)
    (worker,) = stage.desk.queries.processes(room)
    await stage.desk.processes.cancel(room, worker.id)
    async with asyncio.timeout(20):
        await working
    assert stage.states(room) == ["cancelled"]
    await stage.settle()
    assert stage.replies(room) == ["Yes."]


async def test_d2_a_worker_has_fifty_turns(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    script.lines["channel"] = [calls(("spawn_worker", {"task": "endless"}), ("reply", {"text": "Yes."}))]
    script.lines["worker"] = [calls(("set_status", {"text": "still at it"})) for _ in range(70)]
    await stage.say(room, "Go")
    (worker,) = stage.desk.queries.processes(room)
    assert (worker.state, worker.steps) == ("failed", 50)
    assert "50 turns" in worker.result


async def test_a_model_that_fails_fails_the_worker_and_tells_the_person(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    broken = RecordedCall(error=RecordedError(kind="BadRequest", what="The key is wrong.", status=400))
    script.lines["channel"] = [calls(("spawn_worker", {"task": "x"}), ("reply", {"text": "Yes."})), broken]
    script.lines["worker"] = [broken]
    await stage.say(room, "Go")
    (worker,) = stage.desk.queries.processes(room)
    assert worker.state == "failed"
    assert "The key is wrong." in worker.result
    assert stage.replies(room) == ["Yes.", ""]


async def test_d18_a_reply_with_a_secret_is_said_again_without(stage: Stage, script: Script) -> None:
    room = await stage.begin()
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    script.lines["channel"] = [secret, calls(("reply", {"text": secret.encode().hex()})), "I may not say."]
    await stage.say(room, "What is the token?")
    assert stage.replies(room) == ["I may not say."]
