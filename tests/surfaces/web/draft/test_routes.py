"""Documents over HTTP, and a reply on the wire byte by byte. F1, F4, F8, F9, F12, F15"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
from pathlib import Path
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.clock import SystemClock
from coterie.eventstore.worker import Worker
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.draft.edit_formats import parser_for
from coterie.modes.draft.replies import ReplyChunker
from tests.surfaces.web.conftest import Web

LAMP = "# The lamp\n\nIt burns every night.\n\nNobody asks why.\n"
CHANGE = "<change><original>Nobody asks why.</original><proposed>Who asks?</proposed><reason>Shorter.</reason></change>"


class Room:
    """A workspace with a document and a thread, over HTTP."""

    def __init__(self, web: Web) -> None:
        self.web = web

    async def begin(self) -> Room:
        character = (await self.web.post("/characters/ready/maren", status=201))["id"]
        made = await self.web.post("/draft/workspaces", {"name": "The coast"}, status=201)
        self.base = f"/draft/workspaces/{made['id']}"
        await self.put("lamp.md", {"text": LAMP})
        body = {"document": "lamp.md", "members": [{"bot": character, "format": "tags"}]}
        self.thread = f"/draft/threads/{(await self.web.post(f'{self.base}/threads', body, status=201))['id']}"
        return self

    async def put(self, path: str, body: object, status: int = 200) -> Any:
        answer = await self.web.client.put(f"{self.base}/documents/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def say(self, text: str, last: int | None = None, **more: object) -> httpx.Response:
        headers = {} if last is None else {"Last-Event-ID": str(last)}
        answer = await self.web.client.post(f"{self.thread}/turns", json={"text": text, **more}, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer

    async def changes(self) -> Any:
        return (await self.web.get(self.thread))["changes"]

    async def settle(self) -> None:
        app = self.web.app
        worker = Worker(app.store.jobs, app.handlers(), clock=SystemClock(), bus=app.store.bus)
        while await worker.drain():
            pass


def events(body: str) -> list[str]:
    assert body.endswith("\n\n")
    return [event + "\n\n" for event in body.split("\n\n")[:-1]]


async def test_f15_the_stream_byte_by_byte(web: Web) -> None:
    room = await Room(web).begin()
    web.script.replies.append(f"I would, ja: größer.\n{CHANGE} Yes?")
    answer = await room.say("Shorter?")
    assert answer.headers["content-type"].startswith("text/event-stream")
    (change,) = await room.changes()
    chunks = ["I ", "would, ", "ja: ", "größer.\n ", "Yes?"]
    expected = "".join(
        f"id: {number}\ndata: {base64.b64encode(text.encode()).decode()}\n\n"
        for number, text in enumerate(chunks, start=1)
    )
    data = f'{{"message_id":"{change["reply"]}","change_ids":["{change["id"]}"],"count":1}}'
    expected += f"id: 6\nevent: changes\ndata: {data}\n\nid: 7\ndata: DONE\n\n"
    assert answer.text == expected


async def test_f15_resumed_at_every_event_the_bytes_are_the_same(web: Web) -> None:
    room = await Room(web).begin()
    web.script.replies.append(f"One two. {CHANGE} Three <change> four")
    whole = (await room.say("Go on.", key="k")).text
    parts = events(whole)
    reply = json.loads(re.findall(r"event: changes\ndata: (.*)\n", whole)[0])["message_id"]
    for odd in ("9" * 5_000, "x", "-1", "²"):
        headers = {b"Last-Event-ID": odd.encode()}
        assert (await web.client.get(f"{room.thread}/turns/{reply}", headers=headers)).text == whole
    for seen in range(len(parts) + 1):
        rest = "".join(parts[seen:])
        assert (await room.say("Go on.", last=seen, key="k")).text == rest
        got = await web.client.get(f"{room.thread}/turns/{reply}", headers={"Last-Event-ID": str(seen)})
        assert got.text == rest
    assert len(web.script.asked) == 1


async def test_f15_resumed_during_the_reply(web: Web) -> None:
    room = await Room(web).begin()
    web.script.paused = True
    web.script.replies.append(f"One two three {CHANGE} four five")
    first = asyncio.create_task(room.say("Go on.", key="k"))
    while not (await web.get(room.thread))["messages"][1:]:
        await asyncio.sleep(0.01)
    web.script.step(3)
    second = asyncio.create_task(room.say("Go on.", last=1, key="k"))
    await asyncio.sleep(0.05)
    web.script.step(100)
    whole, rest = (await first).text, (await second).text
    assert rest == "".join(events(whole)[1:])
    assert "event: changes" in rest


@given(st.text(alphabet="ab \n🦀<>/`", max_size=60), st.lists(st.integers(0, 60), max_size=8))
def test_f15_chunks_do_not_depend_on_the_boundaries_of_the_input(text: str, cuts: list[int]) -> None:
    whole = ReplyChunker(parser_for("tags"))
    expected = [*whole.feed(text), *whole.end()]
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    other = ReplyChunker(parser_for("tags"))
    found = [chunk for at, until in itertools.pairwise(places) for chunk in other.feed(text[at:until])]
    assert [*found, *other.end()] == expected


async def test_f8_deciding_over_http(web: Web) -> None:
    room = await Room(web).begin()
    web.script.replies.append(CHANGE)
    await room.say("Shorter?")
    (change,) = await room.changes()
    assert (change["state"], change["how"], change["original"]) == ("pending", "exact", "Nobody asks why.")
    accepted = await web.post(f"/draft/changes/{change['id']}/accept")
    assert accepted["state"] == "accepted"
    version = await web.get(f"{room.base}/documents/lamp.md")
    assert version["text"] == LAMP.replace("Nobody asks why.", "Who asks?")
    blamed = await web.get(f"{room.base}/blame?document=lamp.md&line=5")
    assert (blamed["change"], f"/draft/threads/{blamed['thread']}") == (change["id"], room.thread)
    assert [one["subject"] for one in await web.get(f"{room.base}/history")] == ["Shorter.", "Edit lamp.md"]
    undone = await web.post(f"/draft/changes/{change['id']}/undo")
    assert undone["state"] == "pending"
    declined = await web.post(f"/draft/changes/{change['id']}/decline", {"comment": "No."})
    assert declined["state"] == "declined"
    answer = await web.client.post(f"/draft/changes/{change['id']}/accept")
    assert answer.status_code == 409
    assert (await web.get(f"{room.base}/changes/lamp.md"))[0]["comment"] == "No."
    shown = await web.get(room.thread)
    assert shown["notes"][0]["text"].endswith("declined a proposal: No.")
    assert await web.post(f"{room.thread}/accept") == []


async def test_f9_a_conflicting_save_is_a_409_with_the_difference(web: Web) -> None:
    room = await Room(web).begin()
    base = (await web.get(f"{room.base}/documents/lamp.md"))["base"]
    await room.put("lamp.md", {"text": LAMP.replace("every night", "always"), "base": base})
    merged = await room.put("lamp.md", {"text": LAMP.replace("# The", "# A"), "base": base})
    assert merged["text"] == LAMP.replace("every night", "always").replace("# The", "# A")
    clash = await room.put("lamp.md", {"text": LAMP.replace("every night", "never"), "base": base}, status=409)
    assert "+It burns never.\n" in clash["difference"]


async def test_f1_workspaces_branches_and_missing_documents(web: Web) -> None:
    room = await Room(web).begin()
    assert [one["name"] for one in await web.get("/draft/workspaces")] == ["The coast"]
    assert await web.get(f"{room.base}/documents") == [{"path": "lamp.md", "title": "The lamp"}]
    assert await web.post(f"{room.base}/branches", {"name": "try", "source": "main"}, status=201) == ["main", "try"]
    await room.put("lamp.md", {"text": "# New\n", "base": "", "branch": "try"}, status=409)
    assert "commit" in await web.post(f"{room.base}/merge", {"source": "try", "target": "main"})
    assert len(await web.get(f"{room.base}/threads?document=lamp.md")) == 1
    base = (await web.get(f"{room.base}/documents/lamp.md?branch=try"))["base"]
    await room.put("lamp.md", {"text": LAMP.replace("# The", "# A"), "base": base, "branch": "try"})
    (differs,) = await web.get(f"{room.base}/compare?source=try&target=main")
    assert differs["path"] == "lamp.md"
    assert "-# The lamp\n+# A lamp\n" in differs["patch"]
    await web.get(f"{room.base}/compare?source=try&target=../main", status=404)
    assert await web.get(f"{room.base}/documents?branch=..") == []
    assert await web.get(f"{room.base}/blame?document=none.md&line=1") is None
    assert await web.get(f"{room.base}/history?branch=a..b") == []
    await web.get(f"{room.base}/documents/none.md", status=404)
    await web.get("/draft/workspaces/none/documents", status=404)
    await web.get("/draft/threads/none", status=404)
    await web.get("/draft/changes/none", status=404)
    await web.get(f"{room.base}/documents/%2e%2e/secret.md", status=400)
    await room.put("notes.txt", {"text": "x"}, status=400)


async def test_f12_the_inbox_over_http(web: Web) -> None:
    room = await Room(web).begin()
    answer = await web.client.put(f"{room.base}/watch", json={"document": "lamp.md"})
    assert answer.status_code == 200
    await room.say("Hello?")
    await room.settle()
    (notice,) = await web.get("/draft/inbox?unread=true")
    assert notice["kind"] == "chat_reply_to_my_message"
    await web.post("/draft/inbox/read")
    assert await web.get("/draft/inbox?unread=true") == []


async def test_f4_the_live_channel_of_a_document_page(web: Web) -> None:
    from coterie.surfaces.web.draft.routes import _live

    room = await Room(web).begin()
    web.script.replies.append(f"One {CHANGE} two")
    thread = web.app.draft.thread_queries.thread("room:" + room.thread.rpartition("/")[2])
    seen: list[str] = []
    said: asyncio.Task[httpx.Response] | None = None
    async for event in _live(web.app.draft, thread, None):
        if said is None:
            said = asyncio.create_task(room.say("Go on."))
        data = json.loads(str(event.data))
        seen.append(data.get("kind", event.event))
        if data.get("kind") == "assistant_turn":
            break
    assert said is not None
    await said
    assert seen[:3] == ["snapshot", "user_turn", "assistant_turn_started"]
    assert "change_proposed" in seen


async def test_f1_a_document_below_another_or_in_place_of_a_folder_is_refused(web: Web) -> None:
    room = await Room(web).begin()
    await room.put("notes/part.md", {"text": "Part.\n"})
    for path in ("lamp.md/part.md", "lamp.md/a/b.md"):
        assert "is a file" in (await room.put(path, {"text": "x"}, status=409))["error"]
    await room.put("notes.md/part.md", {"text": "Part.\n"})
    assert "is a folder" in (await room.put("notes.md", {"text": "x"}, status=409))["error"]
    listed = [one["path"] for one in await web.get(f"{room.base}/documents")]
    assert listed == ["lamp.md", "notes.md/part.md", "notes/part.md"]


async def test_f1_a_folder_that_cannot_be_adopted_is_a_clear_error(web: Web, tmp_path: Path) -> None:
    file, broken = tmp_path / "file", tmp_path / "broken"
    file.write_text("text")
    (broken / ".git").mkdir(parents=True)
    paths = [
        "",
        " ",
        "a",
        str(file),
        str(tmp_path / "missing"),
        "/a\0b",
        str(broken),
        "/" + "x" * 5_000,
        "~nobody-here",
    ]
    bodies = [json.dumps({"name": "Text", "folder": path}) for path in paths]
    for body in [*bodies, '{"name": "Text", "folder": "/\\udc80"}']:
        headers = {"Content-Type": "application/json"}
        answer = await web.client.post("/draft/workspaces", content=body, headers=headers)
        assert 400 <= answer.status_code < 500 and answer.json()["error"] and answer.json()["fix"], (body, answer.text)
    assert await web.get("/draft/workspaces") == []


async def test_f4_a_failed_reply_is_shown_on_the_wire_and_on_the_page_and_can_be_retried(web: Web) -> None:
    room = await Room(web).begin()
    broken = RecordedError(kind="KeyRejected", what="The key was refused.", fix="Change it.", status=401)
    web.script.faults.append(RecordedCall(say="Half a ", error=broken))
    whole = (await room.say("Go on.")).text
    assert [line for line in whole.splitlines() if line.startswith("event:")] == ["event: changes", "event: incomplete"]
    failed = json.loads(re.findall(r"event: incomplete\ndata: (.*)\n", whole)[0])
    assert failed["status"] == 401 and "The key was refused." in failed["why"]
    assert whole.endswith("data: DONE\n\n")
    resumed = await web.client.get(f"{room.thread}/turns/{failed['message_id']}")
    assert resumed.text == whole
    await room.settle()
    message = (await web.get(room.thread))["messages"][-1]
    assert (message["state"], message["status"], message["can_retry"]) == ("truncated", 401, True)
    html = {"Accept": "text/html"}
    page = (await web.client.get(f"{room.thread}/messages", headers=html)).text
    assert "The provider refused the key." in page and f'data-retry="{message["id"]}"' in page
    assert await web.get("/draft/inbox") == []
    web.script.replies.append("Better.")
    again = await web.post(f"{room.thread}/turns/{message['id']}/retry")
    assert (
        "Better."
        in base64.b64decode(
            re.findall(r"data: (.*)", (await web.client.get(f"{room.thread}/turns/{again['reply']}")).text)[0]
        ).decode()
    )
    page = (await web.client.get(f"{room.thread}/messages", headers=html)).text
    assert "data-retry" not in page and "The provider refused the key." in page
    answer = await web.client.post(f"{room.thread}/turns/{message['id']}/retry")
    assert answer.status_code == 400


async def test_f15_a_message_that_nobody_answers_ends_at_once(web: Web) -> None:
    room = await Room(web).begin()
    empty = 'id: 1\nevent: changes\ndata: {"message_id":"","change_ids":[],"count":0}\n\nid: 2\ndata: DONE\n\n'
    assert (await room.say("A note.", to="", key="k")).text == empty
    assert (await room.say("A note.", to="", key="k")).text == empty
    assert web.script.asked == []
