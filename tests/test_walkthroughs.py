"""What tutorials and recipes tell a reader to type is typed, command by command."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.console import run, typed

DOCS = Path(__file__).parent.parent / "docs"
TUTORIALS = sorted(DOCS.glob("tutorials/*.md"))
RECIPES = sorted(DOCS.glob("how-to/*.md"))

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="the pages use curl and jq"),
]


def test_there_is_a_tutorial_for_each_mode() -> None:
    assert [page.stem for page in TUTORIALS] == ["crowd", "desk", "draft", "story"]
    assert all(typed(page.read_text(encoding="utf-8")) for page in TUTORIALS)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It speaks in the model's place, at once; `tests/real` and the page's tour listen to the model itself."""
    tape = tmp_path / "tape.jsonl"
    tape.write_text("\n".join([json.dumps({"say": "The lamp is lit."})] * 200), encoding="utf-8")
    monkeypatch.setenv("COTERIE_MODELS__REPLAY", str(tape))


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("page", [page for page in TUTORIALS if page.stem != "draft"], ids=lambda page: page.stem)
def test_a_tutorial_leads_where_it_says(page: Path, tmp_path: Path) -> None:
    run(typed(page.read_text(encoding="utf-8")), tmp_path)


def test_a_draft_is_written_with_the_model_that_comes_along(tmp_path: Path) -> None:
    """What is proposed is the model's own."""
    run(typed((DOCS / "tutorials" / "draft.md").read_text(encoding="utf-8")), tmp_path)


@pytest.mark.usefixtures("script")
@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_works(page: Path, tmp_path: Path) -> None:
    if steps := typed(page.read_text(encoding="utf-8")):
        run(steps, tmp_path)


def test_a_command_that_fails_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="`coterie frobnicate` ended with 2"):
        run(typed("```console\n$ coterie frobnicate\n```\n"), tmp_path)


def test_a_command_that_says_something_else_fails_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="did not say"):
        run(typed("```console\n$ echo well\nbadly\n```\n"), tmp_path)
