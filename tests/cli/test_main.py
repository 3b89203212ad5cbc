"""The table of commands, help, and the handling of errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

import coterie.cli
from coterie import __version__
from coterie.base.errors import CoterieError
from coterie.cli import COMMANDS, load_command, main
from tests.cli.conftest import Call

MODULES = {path.stem for path in Path(coterie.cli.__file__).parent.glob("*.py")}
HELPERS = {"__init__", "common", "crowd_cluster", "crowd_session", "running_server"}


def test_every_module_has_a_command() -> None:
    used = {load_command(name).registered_commands[0].callback.__module__ for name in COMMANDS}
    assert used == {f"coterie.cli.{module}" for module in MODULES - HELPERS}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_describes_itself_as_in_the_table(name: str) -> None:
    app = load_command(name)
    assert isinstance(app, typer.Typer)
    assert app.info.help == COMMANDS[name]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_has_help(name: str, call: Call) -> None:
    answer = call(name, "--help")
    assert answer.code == 0
    assert f"Usage: coterie {name}" in answer.out


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(call: Call, arguments: list[str]) -> None:
    answer = call(*arguments)
    assert answer.code == 0
    for name, summary in COMMANDS.items():
        assert f"  {name}" in answer.out
        assert summary in answer.out


@pytest.mark.parametrize("argument", ["--version", "-V"])
def test_version(call: Call, argument: str) -> None:
    assert call(argument).out == f"coterie {__version__}\n"


def test_help_imports_nothing_heavy() -> None:
    """This keeps `coterie --help` under 0.3 s."""
    script = (
        "import sys\nfrom coterie.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n"
        "    print('\\n', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "coterie" in loaded
    assert not loaded & {
        "typer",
        "click",
        "rich",
        "pydantic",
        "apsw",
        "fastapi",
        "uvicorn",
        "structlog",
        "httpx",
        "asyncio",
    }


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("verfy", "Did you mean `coterie verify`?"),
        ("event", "Did you mean `coterie events`?"),
        ("qqq", "coterie --help"),
    ],
)
def test_an_unknown_command_suggests(call: Call, typed: str, hint: str) -> None:
    answer = call(typed)
    assert answer.code == 2
    assert f"There is no command {typed}." in answer.err
    assert hint in answer.err


def test_an_unknown_option_is_refused(call: Call) -> None:
    answer = call("verify", "--fast")
    assert answer.code == 2
    assert "--fast" in answer.err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            CoterieError("It broke with sk-abcdefghijklmnop1234.", "Mend it."),
            1,
            "It broke with [secret].\n→ Mend it.\n",
        ),
        (OSError(28, "No space left on device"), 6, "No space left on device"),
        (PermissionError(13, "Permission denied", "/x"), 5, "Permission denied: '/x'"),
    ],
)
def test_errors_are_sentences_with_exit_codes(
    call: Call, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, message: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("coterie.cli.data.verify_app", fail)
    answer = call("verify")
    assert answer.code == code
    assert message in answer.err


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "coterie", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"coterie {__version__}\n"
    assert main.__module__ == "coterie.cli"
