"""The console commands of tutorials and how-to guides run and print what the pages show."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.console import console_steps, run

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS = sorted(DOCS.glob("tutorials/*.md"))
GUIDES = sorted(DOCS.glob("how-to/*.md"))

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="curl and jq are not installed"),
]


def test_there_is_a_tutorial_for_each_mode() -> None:
    assert [page.stem for page in TUTORIALS] == ["crowd", "desk", "draft", "story"]
    assert all(console_steps(page.read_text(encoding="utf-8")) for page in TUTORIALS)


@pytest.fixture
def recorded_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays a recorded answer in place of the model; `tests/real` covers the model itself."""
    recording = tmp_path / "recording.jsonl"
    recording.write_text("\n".join([json.dumps({"say": "The lamp is lit."})] * 200), encoding="utf-8")
    monkeypatch.setenv("COTERIE_MODELS__REPLAY", str(recording))


@pytest.mark.usefixtures("recorded_model")
@pytest.mark.parametrize("page", [page for page in TUTORIALS if page.stem != "draft"], ids=lambda page: page.stem)
def test_tutorial_commands_succeed(page: Path, tmp_path: Path) -> None:
    run(console_steps(page.read_text(encoding="utf-8")), tmp_path)


def test_the_draft_tutorial_works_with_the_embedded_model(tmp_path: Path) -> None:
    run(console_steps((DOCS / "tutorials" / "draft.md").read_text(encoding="utf-8")), tmp_path)


@pytest.mark.usefixtures("recorded_model")
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_guide_commands_succeed(page: Path, tmp_path: Path) -> None:
    if steps := console_steps(page.read_text(encoding="utf-8")):
        run(steps, tmp_path)


def test_a_failing_command_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="`coterie frobnicate` ended with 2"):
        run(console_steps("```console\n$ coterie frobnicate\n```\n"), tmp_path)


def test_different_output_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="did not print"):
        run(console_steps("```console\n$ echo well\nbadly\n```\n"), tmp_path)
