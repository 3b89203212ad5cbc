"""Documentation coverage: everything public is described, generated pages are current, examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from coterie.base.config import load_config
from coterie.base.errors import CoterieError
from coterie.settings import Settings
from tools.reference.commands import Command, commands
from tools.reference.events import declared_payloads
from tools.reference.http import api
from tools.reference.markdown import field_descriptions
from tools.reference.message_diagram import EVERY_EVENT, STEPS, resolve
from tools.reference.package_diagram import imports, layers
from tools.reference.pages import PAGES as GENERATED_PAGES
from tools.reference.settings import settings_of

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")


def errors(base: type[CoterieError] = CoterieError) -> Iterator[type[CoterieError]]:
    for one in base.__subclasses__():
        yield one
        yield from errors(one)


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.name)
def test_commands_and_options_have_help_texts(command: Command) -> None:
    assert command.meaning
    assert [option.written for option in command.options if not option.meaning] == []


def test_settings_have_descriptions() -> None:
    assert [setting.key for setting in settings_of(Settings) if not setting.meaning] == []


def test_event_kinds_have_docstrings() -> None:
    """Of their own: a class without one would inherit that of `Payload`."""
    assert [kind for kind, payload in declared_payloads().items() if not payload.__dict__.get("__doc__")] == []


def test_event_fields_have_docstrings() -> None:
    fields = [
        (kind, name, description)
        for kind, payload in declared_payloads().items()
        for name, description in field_descriptions(payload).items()
    ]
    assert len(fields) > 400
    assert [f"{kind}.{name}" for kind, name, description in fields if not description] == []


def test_routes_have_summaries() -> None:
    routes = [
        (method, path, route.get("summary"))
        for path, methods in api()["paths"].items()
        for method, route in methods.items()
    ]
    assert len(routes) > 100
    # FastAPI derives a missing summary from the function's name, in title case.
    assert [route for route in routes if not route[2] or route[2].istitle()] == []


def test_exit_codes_are_listed() -> None:
    defining = [path for path in (ROOT / "src").rglob("*.py") if "exit_code" in path.read_text(encoding="utf-8")]
    for path in defining:  # packages are imported lazily
        import_module(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", REFERENCE, re.MULTILINE)}
    assert listed == {0} | {error.exit_code for error in errors() if error.__module__.startswith("coterie.")}


@pytest.mark.parametrize("name", list(GENERATED_PAGES))
def test_generated_pages_are_up_to_date(name: str) -> None:
    """`.venv/bin/python -m tools.reference` writes them."""
    assert (ROOT / name).read_text(encoding="utf-8") == GENERATED_PAGES[name]()


@pytest.mark.parametrize("by", [*(step.by for step in STEPS), *(by for _, by in EVERY_EVENT)])
def test_steps_of_the_message_diagram_name_existing_code(by: str) -> None:
    assert callable(resolve(by))


def test_an_unknown_name_in_the_message_diagram_raises() -> None:
    with pytest.raises(AttributeError):
        resolve("messaging.inbox:Inbox.missing")


def test_the_package_diagram_has_no_upward_imports() -> None:
    order = [package for row in layers() for package in row]
    assert {package for pair in imports() for package in pair} <= set(order)
    assert [(one, other) for one, other in imports() if order.index(one) > order.index(other)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_resolve(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def wide_lines(text: str) -> list[int]:
    """Numbers of the lines of prose over 100 columns. Tables, code and lines that only link can be wider."""
    wide, code = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            code = not code
        is_prose = not code and not line.lstrip().startswith(("|", "<", "!["))
        if is_prose and len(line) > 100 and not re.fullmatch(r"(\d+\.|-) \[[^\]]*\]\([^)]*\)", line):
            wide.append(number)
    return wide


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "reference"], ids=lambda page: page.name
)
def test_prose_is_at_most_100_columns_wide(page: Path) -> None:
    assert wide_lines(page.read_text(encoding="utf-8")) == []


def test_wide_lines_of_prose_are_found() -> None:
    wide = "word " * 30
    assert wide_lines(f"{wide}\n| {wide} |\n```\n{wide}\n```\n1. [{wide}](a.md)\n- {wide}") == [1, 7]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    """The Python blocks of a page run in order in one process."""
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
def test_toml_examples_load(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block, encoding="utf-8")
        environ = dict.fromkeys(re.findall(r'"env:(\w+)"', block), "something long")
        load_config(Settings, file=file, environ=environ, secret=lambda *_: "something long")


def test_the_navigation_lists_every_page() -> None:
    docs = ROOT / "docs"
    listed = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    not_listed = {"adr", "runbooks"}  # linked from other pages
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md") if page.parent.name not in not_listed}
