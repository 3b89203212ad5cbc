"""Every command with hostile arguments ends with an exit code and a plain message, never with a traceback."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from coterie.cli import COMMANDS, load_command, main
from tests.cli.conftest import Answer

HOSTILE = ("", "x" * 5_000, "a\nb\x1b[31m\x7f", "../../../nowhere", "/dev/null/x", "99999999999999999999", "nan")
VALID = {"name": "Mara", "character": "Mara", "target": "out.json"}
RUNS_UNTIL_STOPPED = {("serve",), ("crowd", "demo"), ("crowd", "run"), ("crowd", "gateway"), ("agent", "serve")}
"""Commands that would start with some of these values; their own tests have the invalid ones."""


def leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command.params


ALL_PARAMETERS = [
    pytest.param(path, parameters, id=" ".join(path))
    for name in COMMANDS
    for path, parameters in leaves(typer.main.get_command(load_command(name)), (name,))
]
COMMAND_PARAMETERS = [one for one in ALL_PARAMETERS if one.values[0] not in RUNS_UNTIL_STOPPED]


def argument_lists(parameters: list[Any], value: str) -> Iterator[list[str]]:
    """Each parameter in turn with this value, the other required ones with a valid one."""
    options = [one for one in parameters if one.opts[0].startswith("-")]
    positional = [one for one in parameters if one not in options]
    required = [f"{one.opts[0]}={VALID.get(one.name, value)}" for one in options if one.required]
    valid = [VALID.get(one.name, value) for one in positional]
    for position in range(len(positional)):
        yield [*required, "--", *valid[:position], value, *valid[position + 1 :]]
    for option in options:
        if not option.is_flag:
            yield [*required, f"{option.opts[0]}={value}", "--", *valid]
        elif value == HOSTILE[0]:
            yield [*required, option.opts[0], "--", value, *valid[1:]]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[list[str]], Answer]:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EDITOR", raising=False)

    def run_command(arguments: list[str]) -> Answer:
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else int(code is not None), captured.out, captured.err)

    assert run_command(["characters", "new", "Mara"]).code == 0
    return run_command


@pytest.mark.parametrize(("path", "parameters"), COMMAND_PARAMETERS)
def test_a_command_with_hostile_arguments_ends_with_a_message(
    run: Callable[[list[str]], Answer], path: tuple[str, ...], parameters: list[Any]
) -> None:
    seen = set()
    for value in HOSTILE:
        for arguments in argument_lists(parameters, value):
            if (command := (*path, *arguments)) in seen or "--follow" in command:
                continue
            seen.add(command)
            named = ascii([part[:60] for part in command])
            answer = run(list(command))
            shown = ascii((answer.err + answer.out)[-1_000:])
            assert "Traceback" not in shown, (named, shown)
            assert "Internal error" not in shown, (named, shown)
            assert answer.code in range(126), (named, shown)
            assert answer.code == 0 or (answer.err + answer.out).strip(), named


@pytest.mark.parametrize("name", ["", " ", "n" * 201, "a\nb"])
def test_a_character_without_a_proper_name_is_refused(run: Callable[[list[str]], Answer], name: str) -> None:
    answer = run(["characters", "new", name])
    assert answer.code == 21
    assert "name" in answer.err
    assert "→" in answer.err
    assert len(run(["characters", "list"]).out.splitlines()) == 1


def test_an_argument_that_is_not_text_is_refused(run: Callable[[list[str]], Answer]) -> None:
    answer = run(["characters", "new", "\udc80"])
    assert answer.code == 2
    assert "UTF-8" in answer.err


def test_an_unexpected_error_is_a_message_and_not_a_traceback(
    run: Callable[[list[str]], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("coterie.cli.load_command", lambda name: burst)
    answer = run(["verify"])
    assert answer.code == 70
    assert "Internal error (RuntimeError: boom)" in answer.err
    assert "→" in answer.err


@pytest.mark.parametrize(("path", "parameters"), ALL_PARAMETERS)
def test_every_number_has_a_range(path: tuple[str, ...], parameters: list[Any]) -> None:
    numbers = [one for one in parameters if one.bare_type() in (int, float)]
    assert [one.name for one in numbers if one.min is None or one.max is None] == []
