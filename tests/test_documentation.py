"""The documentation is part of the product: nothing goes undescribed, and what it shows runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from coterie.app import Settings
from coterie.cli import COMMANDS
from coterie.kernel import declared_kinds

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, info in model.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from settings(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_is_described(name: str) -> None:
    assert f"`coterie {name}" in REFERENCE


@pytest.mark.parametrize("name", sorted(settings(Settings)))
def test_every_setting_is_described(name: str) -> None:
    assert f"`{name}`" in REFERENCE


def test_every_event_is_described_and_no_other() -> None:
    ours = {kind for kind, payload in declared_kinds().items() if payload.__module__.startswith("coterie.")}
    section = REFERENCE.split("## Events")[1].split("\n## ")[0]
    described = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert described == ours


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run one after the other, as a reader would run them."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if not blocks:
        return
    environ = {**os.environ, "COTERIE_HOME": str(tmp_path / "home"), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_is_in_the_site_and_every_entry_of_the_site_is_a_page() -> None:
    listed = set(re.findall(r'"([\w-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    assert listed == {page.name for page in (ROOT / "docs").glob("*.md")}
