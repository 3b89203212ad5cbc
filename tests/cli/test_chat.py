"""`coterie chat` line by line, with a scripted model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.paths import Paths
from tests.cli.conftest import Answer, Call


@pytest.fixture(autouse=True)
def script(home: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A recording replaces every model; requests that are not in it fail."""
    monkeypatch.setattr("coterie.app.all_projections", all_projections)
    tape = tmp_path / "tape.jsonl"
    said = ["Tea first.", "Tea, then.", "The boat is late."]
    opening = {"when": "Opening prose:", "say": "{}"}
    lines = [opening, *({"when": f"say {number}", "say": text} for number, text in enumerate(said))]
    tape.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setenv("COTERIE_MODELS__REPLAY", str(tape))
    yield


def talk(call: Call, monkeypatch: pytest.MonkeyPatch, *arguments: str, lines: list[str]) -> Answer:
    typed = iter(lines)

    def read(_: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    return call("chat", *arguments)


def test_p16_without_characters_a_ready_made_one_is_offered(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = talk(call, monkeypatch, lines=["1"])
    assert answer.code == 0, answer.err
    assert "There are no characters yet" in answer.out
    assert "The kettle has just begun to complain" in answer.out
    assert talk(call, monkeypatch, lines=[]).out.count("The kettle has just begun") == 1, "it goes on where it was left"


def test_p16_a_first_name_continues_the_chat_with_that_character(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "The kettle" in talk(call, monkeypatch, "maren", lines=[]).out
    assert talk(call, monkeypatch, "Maren", lines=[]).code == 0
    assert call("characters", "list").out.count("Maren Oke") == 1
    call("characters", "new", "Maren Vale")
    assert talk(call, monkeypatch, "maren oke", lines=[]).code == 0
    several = call("characters", "show", "maren")
    assert several.code == 21
    assert "Several characters are called maren" in several.err


def test_p16_messages_and_slash_commands(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "say 0",
        "/rewind",
        "/undo",
        "/fork",
        "say 2",
        "/rewind 9",
        "/stop",
        "/help",
        "/nonsense",
        "/quit",
        "never",
    ]
    answer = talk(call, monkeypatch, "maren", lines=lines)
    assert answer.code == 0, answer.err
    assert "Maren Oke: Tea first.\n" in answer.out
    assert "Rewound." in answer.out
    assert "(fork)" in answer.out
    assert "The boat is late." in answer.out
    assert "nothing before that" in answer.out
    assert "/regenerate" in answer.out
    assert call("verify").code == 0


def test_p16_errors_are_shown_and_the_chat_continues(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = talk(call, monkeypatch, "io", lines=["/regenerate", "/undo", "what is not on the tape", "say 0"])
    assert answer.code == 0, answer.err
    assert "Nothing was rewound in this chat." in answer.out
    assert "/regenerate tries again" in answer.out
    assert "Tea first." in answer.out


def test_p16_an_unknown_name_is_refused(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert talk(call, monkeypatch, "nobody", lines=[]).code == 21
    assert talk(call, monkeypatch, lines=["7"]).code == 2
