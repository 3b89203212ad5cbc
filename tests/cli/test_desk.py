"""`coterie desk`, line by line, with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.paths import Paths
from tests.cli.conftest import Answer, Call


@pytest.fixture(autouse=True)
def script(home: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.app.all_projections", all_projections)
    tape = tmp_path / "tape.jsonl"
    said = {"Good morning": "Good morning. What should be done?", "Nothing yet": "Then I wait."}
    tape.write_text("\n".join(json.dumps({"when": when, "say": text}) for when, text in said.items()))
    monkeypatch.setenv("COTERIE_MODELS__REPLAY", str(tape))


def talk(call: Call, monkeypatch: pytest.MonkeyPatch, *arguments: str, lines: list[str]) -> Answer:
    typed = iter([*lines, "/quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    return call("desk", *arguments)


def test_a_desk_chat_continues_where_it_was_left(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("characters", "new", "Mara").code == 0
    lines = ["Good morning", "/status", "/schedules", "/cancel w0", "/tell w0 more", "/yes w0", "/steps w0", "/help"]
    answer = talk(call, monkeypatch, "Mara", lines=lines)
    assert answer.code == 0, answer.err
    assert "Mara: Good morning. What should be done?\n" in answer.out
    for text in (
        "No work is in progress.",
        "There are no schedules.",
        "There is no branch or worker 'w0'",
        "/status",
    ):
        assert text in answer.out
    again = talk(call, monkeypatch, "mara", lines=["Nothing yet"])
    assert "Then I wait." in again.out and "Good morning" not in again.out


def test_an_unknown_character_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(call, monkeypatch, "Nobody", lines=[]).code != 0
