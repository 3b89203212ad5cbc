"""A story on a real server process with the embedded model and no key; after each step the log holds its word."""

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


class Playhouse(Server):
    """`coterie serve` in a fresh folder, with short replies."""

    def __init__(self, house: Path) -> None:
        super().__init__(house, settings=SHORT_REPLIES)

    def get(self, path: str) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, told: object = None) -> Any:
        answer = self.client.post(path, json=told)
        assert answer.is_success, answer.text
        return answer.json()

    def verify(self, step: str) -> None:
        """`coterie verify` while the server runs; in this process, since starting another takes seconds each time."""
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setenv("COTERIE_HOME", str(self.house))
            main(["verify"])
        assert ended.value.code == 0, f"not clean after {step}"

    def texts(self, chat: str) -> list[str]:
        return [turn["text"] for turn in self.get(f"{chat}/turns")["turns"]]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Playhouse]:
    made = Playhouse(tmp_path / "house")
    yield made
    made.close()


@pytest.mark.timeout(480)
def test_a_story_from_author_to_reset(house: Playhouse) -> None:
    house.client.put("/you", json={"name": "Ana"})
    bot = house.post("/characters", {"name": "Mara", "persona": "Mara keeps a lighthouse and says little.",
                               "kickoff": "Mara lights the lamp as rain begins."})  # fmt: skip
    house.verify("author")

    proposal = house.get(f"/characters/{bot['id']}/kickoff")
    begun = house.post(f"/characters/{bot['id']}/kickoff", proposal["opening"])
    chat = f"/chats/{begun['id']}"
    assert len(house.texts(chat)) == 1
    house.verify("kickoff")

    replies = []
    for number in range(10):
        told = house.post(f"{chat}/turns?wait=true", {"text": f'*waves* "Number {number}."', "key": str(number)})
        assert told["text"].strip(), told
        assert told["why"] in ("", "length"), told
        replies.append(told)
    assert len(house.texts(chat)) == 21
    house.verify("ten turns")

    scene = house.get(chat)["scene"]
    assert house.post(f"{chat}/scene/close")["scene"] != scene
    house.verify("scene close")

    impact = house.get(f"{chat}/rewind/{replies[4]['reply']}")
    assert impact["turns"] == 10
    before = house.texts(chat)
    house.post(f"{chat}/rewind", {"turn": replies[4]["reply"]})
    assert house.texts(chat) == before[:11]
    house.verify("rewind")

    again = house.post(f"{chat}/regenerate?wait=true")
    assert again["turn"] == replies[4]["turn"]
    assert len(house.get(f"{chat}/alternatives")) == 2
    house.verify("regenerate")

    fork = f"/chats/{house.post(f'{chat}/fork', {'turn': replies[2]['reply']})['id']}"
    assert house.texts(fork) == before[:7]
    house.verify("fork")

    drawer = house.get(f"{fork}/drawer")
    assert {(edge["of"], edge["toward"]) for edge in drawer["edges"]} == {("you", bot["id"]), (bot["id"], "you")}
    second = coterie(house.house, "chat", "Mara")
    assert second.returncode == 4
    assert "server that runs" in second.stderr
    assert "Mara" in coterie(house.house, "cast", "list").stdout

    house.post(f"/characters/{bot['id']}/reset", {"confirm": "Mara"})
    assert house.get("/chats") == []
    house.verify("reset")

    again = house.post(f"/characters/{bot['id']}/kickoff", {})
    with house.client.stream("GET", f"/chats/{again['id']}/events") as stream:
        heard = stream.iter_lines()
        assert "event: snapshot" in (next(heard), next(heard))
        house.process.send_signal(signal.SIGTERM)
        for _ in heard:
            pass  # the stream ends in order, whoever listens
    assert house.process.wait(60) == 0
    assert coterie(house.house, "verify").stdout.startswith("Clean:")
    told_log = [json.loads(line) for line in house.logs.read_text().splitlines()]
    assert not [line for line in told_log if line.get("level") == "error"], told_log
