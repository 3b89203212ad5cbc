"""The documentation is part of the product: nothing goes undescribed, and what it shows runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from coterie.app import Settings
from coterie.base.config import load_config
from coterie.base.errors import CoterieError
from tools.reference.commands import Command, commands
from tools.reference.events import declared_payloads
from tools.reference.http import api
from tools.reference.markdown import field_descriptions
from tools.reference.message_diagram import EVERY_EVENT, STEPS, resolve
from tools.reference.package_diagram import imports, layers
from tools.reference.pages import PAGES as MADE
from tools.reference.settings import settings_of

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def errors(base: type[CoterieError] = CoterieError) -> Iterator[type[CoterieError]]:
    for one in base.__subclasses__():
        yield one
        yield from errors(one)


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.name)
def test_every_command_says_what_it_and_its_options_do(command: Command) -> None:
    assert command.meaning
    assert [option.written for option in command.options if not option.meaning] == []


def test_every_setting_says_what_it_is_for() -> None:
    assert [setting.key for setting in settings_of(Settings) if not setting.meaning] == []


def test_every_kind_of_event_says_what_happened() -> None:
    """In its own words: a class without any would inherit those of `Payload`."""
    assert [kind for kind, payload in declared_payloads().items() if not payload.__dict__.get("__doc__")] == []


def test_every_field_of_an_event_says_what_it_holds() -> None:
    """In a string beneath it."""
    told = [
        (kind, name, said)
        for kind, payload in declared_payloads().items()
        for name, said in field_descriptions(payload).items()
    ]
    assert len(told) > 400
    assert [f"{kind}.{name}" for kind, name, said in told if not said] == []


def test_every_route_says_what_it_does() -> None:
    told = [
        (method, path, route.get("summary"))
        for path, methods in api()["paths"].items()
        for method, route in methods.items()
    ]
    assert len(told) > 100
    # FastAPI makes a summary of the function's name where there is none: it has no lower-case second word.
    assert [route for route in told if not route[2] or route[2].istitle()] == []


def test_every_exit_code_is_listed() -> None:
    for path in (ROOT / "src").rglob("errors.py"):  # a room that is loaded only where it is needed has errors, too
        import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", REFERENCE, re.MULTILINE)}
    assert listed == {0} | {error.exit_code for error in errors() if error.__module__.startswith("coterie.")}


@pytest.mark.parametrize("name", list(MADE))
def test_what_is_made_from_the_code_is_up_to_date(name: str) -> None:
    """`.venv/bin/python -m tools.reference` writes what is not."""
    assert (ROOT / name).read_text(encoding="utf-8") == MADE[name]()


@pytest.mark.parametrize("by", [*(step.by for step in STEPS), *(by for _, by in EVERY_EVENT)])
def test_every_step_of_a_message_names_something_there_is(by: str) -> None:
    assert callable(resolve(by))


def test_a_step_that_names_nothing_stops_the_drawing() -> None:
    with pytest.raises(AttributeError):
        resolve("engine.reception:Reception.swallow")


def test_no_room_imports_a_higher_one_in_the_drawing_either() -> None:
    order = [room for row in layers() for room in row]
    assert {room for pair in imports() for room in pair} <= set(order)
    assert [(here, there) for here, there in imports() if order.index(here) > order.index(there)] == []


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_in_pages_are_settings(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block, encoding="utf-8")
        environ = dict.fromkeys(re.findall(r'"env:(\w+)"', block), "something long")
        load_config(Settings, file=file, environ=environ, secret=lambda _: "something long")


def test_every_page_is_in_the_site_and_every_entry_of_the_site_is_a_page() -> None:
    docs = ROOT / "docs"
    listed = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    apart = {"adr", "runbooks"}  # reached from the pages that speak of them
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name not in apart}
