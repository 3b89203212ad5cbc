"""A story on a real server process with the embedded model and no key; after each step `coterie verify` is clean."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coterie.cli import main
from tests.e2e.server_process import Server, coterie

SHORT_REPLIES = {
    "COTERIE_STORY__REPLY_TOKENS": "16",
    "COTERIE_STORY__NARRATIVE_BUDGET_HARD": "900",
    "COTERIE_STORY__NARRATIVE_BUDGET_SOFT": "600",
    "COTERIE_MODELS__CLASSIFIER_TIMEOUT_S": "1",
}


class StoryServer(Server):
    """`coterie serve` in a fresh folder, with short replies."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, settings=SHORT_REPLIES)

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: object = None) -> Any:
        answer = self.client.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def verify(self, step: str) -> None:
        """`coterie verify` while the server runs; in this process, since starting another takes seconds each time."""
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as exit_:
            patch.setenv("COTERIE_HOME", str(self.home))
            main(["verify"])
        assert exit_.value.code == 0, f"not clean after {step}"

    def texts(self, chat: str) -> list[str]:
        return [turn["text"] for turn in self.get(f"{chat}/turns")["turns"]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[StoryServer]:
    running = StoryServer(tmp_path / "home")
    yield running
    running.close()


@pytest.mark.timeout(480)
def test_a_story_from_author_to_reset(server: StoryServer) -> None:
    server.client.put("/you", json={"name": "Ana"})
    character = server.post("/characters", {"name": "Mara", "persona": "Mara keeps a lighthouse and says little.",
                               "kickoff": "Mara lights the lamp as rain begins."})  # fmt: skip
    server.verify("author")

    proposal = server.get(f"/characters/{character['id']}/kickoff")
    started = server.post(f"/characters/{character['id']}/kickoff", proposal["opening"])
    chat = f"/chats/{started['id']}"
    assert len(server.texts(chat)) == 1
    server.verify("kickoff")

    replies = []
    for number in range(10):
        reply = server.post(f"{chat}/turns?wait=true", {"text": f'*waves* "Number {number}."', "key": str(number)})
        assert reply["text"].strip(), reply
        assert reply["why"] in ("", "length"), reply
        replies.append(reply)
    assert len(server.texts(chat)) == 21
    server.verify("ten turns")

    scene = server.get(chat)["scene"]
    assert server.post(f"{chat}/scene/close")["scene"] != scene
    server.verify("scene close")

    impact = server.get(f"{chat}/rewind/{replies[4]['reply']}")
    assert impact["turns"] == 10
    before = server.texts(chat)
    server.post(f"{chat}/rewind", {"turn": replies[4]["reply"]})
    assert server.texts(chat) == before[:11]
    server.verify("rewind")

    again = server.post(f"{chat}/regenerate?wait=true")
    assert again["turn"] == replies[4]["turn"]
    assert len(server.get(f"{chat}/alternatives")) == 2
    server.verify("regenerate")

    fork = f"/chats/{server.post(f'{chat}/fork', {'turn': replies[2]['reply']})['id']}"
    assert server.texts(fork) == before[:7]
    server.verify("fork")

    drawer = server.get(f"{fork}/drawer")
    assert {(edge["of"], edge["toward"]) for edge in drawer["edges"]} == {
        ("you", character["id"]),
        (character["id"], "you"),
    }
    second = coterie(server.home, "chat", "Mara")
    assert second.returncode == 4
    assert "server that runs" in second.stderr
    assert "Mara" in coterie(server.home, "characters", "list").stdout

    server.post(f"/characters/{character['id']}/reset", {"confirm": "Mara"})
    assert server.get("/chats") == []
    server.verify("reset")

    again = server.post(f"/characters/{character['id']}/kickoff", {})
    with server.client.stream("GET", f"/chats/{again['id']}/events") as stream:
        lines = stream.iter_lines()
        assert "event: snapshot" in (next(lines), next(lines))
        server.process.send_signal(signal.SIGTERM)
        for _ in lines:
            pass  # the stream ends on shutdown
    assert server.process.wait(60) == 0
    assert coterie(server.home, "verify").stdout.startswith("Clean:")
    log = [json.loads(line) for line in server.logs.read_text().splitlines()]
    assert not [line for line in log if line.get("level") == "error"], log
