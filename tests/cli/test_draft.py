"""`coterie draft` on a plain file and in Git, with a scripted model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from coterie.app import all_projections
from coterie.base.paths import Paths
from tests.cli.conftest import Answer, Call

LAMP = "# The lamp\n\nIt burns every night.\n\nNobody asks why.\n"


def change(original: str, proposed: str, reason: str = "Shorter.") -> str:
    return f"<change><original>{original}</original><proposed>{proposed}</proposed><reason>{reason}</reason></change>"


REPLY = f"It says too much. {change('Nobody asks why.', 'Who asks?')} {change('It burns every night.', 'It burns.')}"


@pytest.fixture(autouse=True)
def script(home: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.app.all_projections", all_projections)
    lines = [
        {"when": "lost", "say": change("Goats graze on mountains in the summer.", "Boats.")},
        {"when": "You quoted this", "say": "<original>Nobody asks why.</original>"},
        {"when": "broken", "say": "<change><original>x", "error": {"kind": "BadRequest", "what": "It broke."}},
        {"when": "marks", "say": "<<<<<<< SEARCH\nNobody asks why.\n=======\nWho asks?\n>>>>>>> REPLACE A doubt.\n"},
        {"when": "shorter", "say": REPLY},
    ]
    recording = tmp_path / "recording.jsonl"
    recording.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setenv("COTERIE_MODELS__REPLAY", str(recording))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lamp.md"
    path.write_text(LAMP)
    return path


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    (folder / "lamp.md").write_text(LAMP)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "user.name", "Ann")
    git(folder, "config", "user.email", "ann@example.org")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "Begin")
    return folder / "lamp.md"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def review(call: Call, monkeypatch: pytest.MonkeyPatch, file: Path, *lines: str) -> Answer:
    answers = iter(lines)

    def read(_: str) -> str:
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    return call("draft", "review", str(file))


def test_f16_ask_prints_the_reply_and_its_proposals(call: Call, file: Path) -> None:
    answer = call("draft", "ask", str(file), "Make it shorter.")
    assert answer.code == 0, answer.err
    assert "Editor: It says too much." in answer.out
    assert "<change>" not in answer.out
    assert " - Nobody asks why.\n + Who asks?\n" in answer.out
    assert "2 proposals to review" in answer.out
    assert file.read_text() == LAMP


def test_f16_review_of_a_plain_file_accepts_declines_and_undoes(
    call: Call, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    call("draft", "ask", str(file), "Make it shorter.")
    answer = review(call, monkeypatch, file, "x", "a", "u", "d", "I like it.")
    assert answer.code == 0, answer.err
    assert "accepted → lamp.md" in answer.out
    assert "undone" in answer.out
    assert file.read_text() == LAMP
    # The undone proposal is pending again; the declined one is not.
    answer = review(call, monkeypatch, file, "a")
    assert file.read_text() == LAMP.replace("It burns every night.", "It burns.")
    assert "1/1" in answer.out
    assert "There are no proposals" in review(call, monkeypatch, file).out


def test_f16_an_edit_of_the_file_makes_a_proposal_stale_or_moves_it(
    call: Call, monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    call("draft", "ask", str(file), "Make it shorter.")
    file.write_text("A line before.\n\n" + LAMP.replace("Nobody asks why.", "Somebody asks."))
    answer = call("draft", "review", str(file), "--accept-all")
    assert answer.code == 0, answer.err
    assert "stale: the text has changed" in answer.out
    assert file.read_text() == "A line before.\n\n" + LAMP.replace("Nobody asks why.", "Somebody asks.").replace(
        "It burns every night.", "It burns."
    )


def test_f16_edit_and_accept(call: Call, monkeypatch: pytest.MonkeyPatch, file: Path, tmp_path: Path) -> None:
    call("draft", "ask", str(file), "Make it shorter.")
    editor = tmp_path / "editor.sh"
    editor.write_text('#!/bin/sh\nprintf "It glows.\\n" > "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    answer = review(call, monkeypatch, file, "e", "q")
    assert answer.code == 0, answer.err
    assert file.read_text() == LAMP.replace("It burns every night.", "It glows.")


def test_f16_in_git_an_accept_is_a_commit_and_updates_the_file(call: Call, clone: Path) -> None:
    call("draft", "ask", str(clone), "Make it shorter.", "--brief", "Cut.")
    answer = call("draft", "review", str(clone), "--accept-all")
    assert answer.code == 0, answer.err
    assert answer.out.count("accepted → commit ") == 2
    assert clone.read_text() == LAMP.replace("Nobody asks why.", "Who asks?").replace("every night.", "").replace(
        "burns ", "burns."
    )
    log = git(clone.parent, "log", "--format=%an|%s|%(trailers:key=Proposed-by,valueonly)")
    assert "Ann|Shorter.|Editor" in log
    assert git(clone.parent, "status", "--porcelain") == ""


def test_f16_uncommitted_changes_are_refused(call: Call, clone: Path) -> None:
    clone.write_text(LAMP + "More.\n")
    answer = call("draft", "ask", str(clone), "Make it shorter.")
    assert answer.code == 40
    assert "not committed" in answer.err
    assert call("draft", "ask", str(clone), "Make it shorter.", "--plain").code == 0
    assert call("draft", "review", str(clone), "--plain", "--accept-all").code == 0
    assert "Who asks?" in clone.read_text()
    assert git(clone.parent, "log", "--format=%s").strip() == "Begin"


def test_f16_a_quote_is_repaired_before_the_proposals_are_shown(call: Call, file: Path) -> None:
    answer = call("draft", "ask", str(file), "Find what is lost.")
    assert answer.code == 0, answer.err
    assert " - Nobody asks why.\n + Boats.\n" in answer.out


def test_f16_a_failed_reply_shows_the_error(call: Call, file: Path) -> None:
    answer = call("draft", "ask", str(file), "Is it broken?")
    assert answer.code == 0
    assert "It broke." in answer.out
    assert "broke off before its end" in answer.out


def test_f16_search_and_replace(call: Call, file: Path) -> None:
    answer = call("draft", "ask", str(file), "With marks?", "--search-replace")
    assert "A doubt." in answer.out
    assert call("draft", "review", str(file), "--list").out.count("──") == 1


def test_f16_invalid_files_are_refused(call: Call, tmp_path: Path) -> None:
    assert "There is no file" in call("draft", "ask", str(tmp_path / "none.md"), "x").err
    assert "is a folder" in call("draft", "review", str(tmp_path)).err
    (tmp_path / "odd.md").write_bytes(b"\xff")
    assert "UTF-8" in call("draft", "review", str(tmp_path / "odd.md")).err
