"""The desk on a real server, from a webhook message to the callback."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from coterie.llm.messages import CompletionRequest
from coterie.modes.desk.agents.tools import AgentTool, make_tool
from tests.modes.desk.conftest import Line, Script, calls
from tests.real.desk_server import DeskServer, open_desk

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")

_SLOW_S = 600
"""The embedded model reads a few hundred tokens a second, and fewer on a busy machine."""


def counting(kind: str, request: CompletionRequest) -> Line:
    """Starts a branch and a worker that counts words with a command, and reports the result."""
    last = request.prompt.messages[-1].text
    used = sum(message.role == "tool" for message in request.prompt.messages)
    if kind == "branch":
        return calls(("memory_save", {"text": "Ana cares about short notes"})) if not used else "Short is good."
    if kind == "worker":
        steps: list[Line] = [
            calls(("file", {"action": "write", "path": "note.txt", "text": "one two three"})),
            calls(("shell", {"command": "wc -w < note.txt; id -u; cat /etc/shadow"})),
            calls(("finish", {"result": f"The command said: {last}"})),
        ]
        return steps[used]
    if "How long is the note" in last:
        return calls(
            ("spawn_worker", {"task": "Count the words of the note."}),
            ("branch", {"thought": "Is that short?"}),
            ("memory_save", {"text": "Ana asked about the note", "type": "event"}),
            ("reply", {"text": "I am counting."}),
        )
    if "The command said" in last:
        return "It has three words." if "\n3\n" in last else "It could not be counted."
    return calls(("skip", {}))


@needs_bwrap
async def test_a_webhook_message_is_answered_and_its_result_called_back(tmp_path: Path) -> None:
    script = Script(respond=counting)
    async with open_desk(tmp_path, script) as server:
        chat = await server.ask("POST", "/desk", {"character": "Mara", "title": "Work", "webhook": "work"}, 201)
        call = {
            "text": "How long is the note?",
            "room": "work",
            "id": "m-1",
            "wait": True,
            "callback": server.receiver.url,
        }
        answer = await server.ask("POST", "/webhook", call, 200)
        assert answer["text"] == "I am counting."
        desk = f"/desk/{chat['id']}"
        messages = await server.until(f"{desk}/messages", lambda lines: lines[-1]["text"].startswith("It "))
        assert [line["text"] for line in messages] == ["How long is the note?", "I am counting.", "It has three words."]
        await server.until(f"{desk}/processes", lambda found: all(each["state"] == "done" for each in found))
        worker = next(each for each in await server.ask("GET", f"{desk}/processes") if each["kind"] == "worker")
        done = (await server.ask("GET", f"{desk}/processes/{worker['id']}"))["done"]
        assert [step["tool"] for step in done] == ["file", "shell", "finish"]
        assert "\n3\n" in done[1]["text"] and "shadow: " in done[1]["text"]
        kept = {memory.text for memory in server.app.memory.browse(owner=chat["character"])}
        assert kept == {"Ana asked about the note", "Ana cares about short notes"}
        await server.app.message_router.wait_idle()
        assert server.receiver.texts == ["I am counting.", "It has three words."]
        state = await server.ask("GET", desk)
        assert state["sandbox"]["state"] == "confined" and "It has" not in state["status"]
        assert state["spent_today"]["calls"] == len(script.requests)
        # The same call again is the same message.
        assert (await server.ask("POST", "/webhook", call, 200))["text"] == "I am counting."
        assert len(await server.ask("GET", f"{desk}/messages")) == 3


async def test_d2_a_follow_up_reaches_a_waiting_worker(tmp_path: Path) -> None:
    def respond(kind: str, request: CompletionRequest) -> Line:
        text = "\n".join(message.text for message in request.prompt.messages)
        if kind == "worker":
            return calls(("finish", {"result": "Dear friend"})) if "Friendly" in text else "Formal or friendly?"
        if request.prompt.messages[-1].text == "Draft a letter":
            work = ("spawn_worker", {"task": "Draft a letter", "interactive": True})
            return calls(work, ("reply", {"text": "Yes."}))
        return "Here it is." if "Dear friend" in text else calls(("skip", {}))

    async with open_desk(tmp_path, Script(respond=respond)) as server:
        desk = f"/desk/{(await server.ask('POST', '/desk', {'character': 'Mara'}, 201))['id']}"
        sent = await server.ask("POST", f"{desk}/messages?wait=true", {"text": "Draft a letter", "key": "k"}, 200)
        assert sent["reply"]["text"] == "Yes."
        again = await server.ask("POST", f"{desk}/messages?wait=true", {"text": "Draft a letter", "key": "k"}, 200)
        assert again["turn"] == sent["turn"]
        (worker,) = await server.until(f"{desk}/processes", lambda found: found[0]["state"] == "waiting")
        assert (worker["result"], worker["needs_yes"]) == ("Formal or friendly?", False)
        await server.ask("POST", f"{desk}/processes/{worker['id']}/follow-up", {"text": "Friendly"}, 200)
        await server.until(f"{desk}/messages", lambda lines: lines[-1]["text"] == "Here it is.")
        late = await server.ask("POST", f"{desk}/processes/{worker['id']}/follow-up", {"text": "More"}, 404)
        assert "done" in late["error"]
        await server.ask("GET", f"{desk}/processes/unknown", status=404)
        await server.ask("GET", "/desk/unknown", status=404)


async def _worker(server: DeskServer, interactive: bool) -> tuple[str, str]:
    desk = f"/desk/{(await server.ask('POST', '/desk', {'character': 'Mara'}, 201))['id']}"
    await server.ask("POST", f"{desk}/messages?wait=true", {"text": "wait" if interactive else "go"})
    (worker,) = await server.until(f"{desk}/processes", lambda found: len(found) == 1)
    return desk, f"{desk}/processes/{worker['id']}"


async def test_d2_cancel_in_every_state(tmp_path: Path) -> None:
    started, proceed = asyncio.Event(), asyncio.Event()

    async def dig() -> str:
        """Dig for a long time."""
        started.set()
        await proceed.wait()
        return "Dug."

    def respond(kind: str, request: CompletionRequest) -> Line:
        last = request.prompt.messages[-1].text
        if kind == "worker":
            return "Which one?" if "wait" in request.prompt.messages[1].text else calls(("dig", {}))
        if last in ("go", "wait"):
            work = ("spawn_worker", {"task": last, "interactive": last == "wait"})
            return calls(work, ("reply", {"text": "Yes."}))
        return calls(("skip", {}))

    async with open_desk(tmp_path, Script(respond=respond)) as server:
        server.app.desk.add_tools([make_tool(dig)])
        _, running = await _worker(server, interactive=False)
        async with asyncio.timeout(60):
            await started.wait()
        assert (await server.ask("POST", f"{running}/cancel"))["done"]
        assert (await server.until(running, lambda it: it["state"] != "running"))["state"] == "cancelled"
        assert not (await server.ask("POST", f"{running}/cancel"))["done"]

        desk, waiting = await _worker(server, interactive=True)
        await server.until(waiting, lambda it: it["state"] == "waiting")
        assert (await server.ask("POST", f"{desk}/stop"))["done"]
        assert (await server.ask("GET", waiting))["state"] == "cancelled"
        assert not (await server.ask("POST", f"{desk}/stop"))["done"]


async def test_d20_the_api_confirms_a_call_and_a_follow_up_does_not(tmp_path: Path) -> None:
    sent: list[str] = []

    async def send_mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "It is sent."

    def respond(kind: str, request: CompletionRequest) -> Line:
        if kind == "worker":
            used = any(message.role == "tool" for message in request.prompt.messages)
            return "It went out." if used else calls(("send_mail", {"to": "bo@example.com"}))
        if request.prompt.messages[-1].text == "Mail Bo":
            return calls(("spawn_worker", {"task": "Mail Bo"}), ("reply", {"text": "Yes."}))
        return calls(("skip", {}))

    async with open_desk(tmp_path, Script(respond=respond)) as server:
        mail: AgentTool = make_tool(send_mail, needs_confirmation=True)
        server.app.desk.add_tools([mail])
        desk = f"/desk/{(await server.ask('POST', '/desk', {'character': 'Mara'}, 201))['id']}"
        await server.ask("POST", f"{desk}/messages?wait=true", {"text": "Mail Bo"})
        (worker,) = await server.until(f"{desk}/processes", lambda found: found[0]["state"] == "waiting")
        assert worker["needs_yes"] and "bo@example.com" in worker["result"]
        path = f"{desk}/processes/{worker['id']}"
        refused = await server.ask("POST", f"{path}/follow-up", {"text": "yes, of course"}, 409)
        assert "yes or no" in refused["error"]
        assert sent == []
        await server.ask("POST", f"{path}/answer", {"allowed": True}, 200)
        await server.until(path, lambda it: it["state"] == "done")
        assert sent == ["bo@example.com"]


async def test_schedules_over_http(tmp_path: Path) -> None:
    async with open_desk(tmp_path, Script()) as server:
        desk = f"/desk/{(await server.ask('POST', '/desk', {'character': 'Mara'}, 201))['id']}"
        schedule = {"prompt": "Look at the news.", "when": {"cron": "0 8 * * 1-5", "zone": "Europe/Berlin"}}
        created = await server.ask("POST", f"{desk}/schedules", schedule, 201)
        assert created["on"] and created["next"] and "cron 0 8" in created["description"]
        path = f"{desk}/schedules/{created['id']}"
        off = await server.ask("POST", f"{path}/switch", {"on": False})
        assert (off["on"], off["next"]) == (False, None)
        assert (await server.ask("POST", f"{path}/switch", {"on": True}))["next"] == created["next"]
        changed = await server.ask("PUT", path, {"prompt": "Look again.", "when": {"every_s": 3600}})
        assert (changed["id"], changed["prompt"]) == (created["id"], "Look again.")
        for bad in ({"cron": "61 * * * *"}, {"every_s": 5}, {"at": "2001-01-01T00:00:00Z"}, {"cron": "0 0 30 2 *"}):
            await server.ask("POST", f"{desk}/schedules", {"prompt": "x", "when": bad}, 422)
        await server.ask("POST", f"{desk}/schedules", {"prompt": "x", "when": {}}, 400)
        await server.ask("DELETE", path)
        assert await server.ask("GET", f"{desk}/schedules") == []
        await server.ask("DELETE", path, status=404)


@pytest.mark.xdist_group("embedded")
async def test_the_desk_with_the_embedded_model(tmp_path: Path) -> None:
    """The model is too small to use tools, so a person starts the worker."""
    async with open_desk(tmp_path, None) as server:
        chat = await server.ask("POST", "/desk", {"character": "Mara", "webhook": "work"}, 201)
        call = {"text": "Good morning, Mara!", "room": "work", "id": "m-1", "callback": server.receiver.url}
        await server.ask("POST", "/webhook", call, 202)
        answer = await server.until("/webhook/m-1?room=work", lambda it: it["status"] == "answered", timeout_s=_SLOW_S)
        assert answer["text"].strip()
        desk = f"/desk/{chat['id']}"
        worker = await server.ask("POST", f"{desk}/workers", {"task": "Say how many days a week has."}, 201)
        ended = await server.until(
            f"{desk}/processes/{worker['id']}", lambda it: it["ended"] is not None, timeout_s=_SLOW_S
        )
        assert ended["state"] == "done" and ended["result"].strip()
        await server.until(f"{desk}/processes", lambda found: all(each["ended"] for each in found))
        events = [event.kind for event in server.app.store.reader.read(limit=1_000)]
        async with asyncio.timeout(_SLOW_S):
            while "desk_results_injected" not in events:
                await asyncio.sleep(0.2)
                events = [event.kind for event in server.app.store.reader.read(limit=1_000)]
        await server.app.message_router.wait_idle()
        # On a slow machine a notice that the answer takes long comes before it.
        assert answer["text"] in server.receiver.texts[:2]
        assert (await server.ask("GET", desk))["spent_today"]["calls"] >= 3
