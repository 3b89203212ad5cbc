"""docs/reference/commands.md: every command with its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typer.core import TyperArgument
from typer.main import get_command

from coterie.cli import COMMANDS, load_command
from tools.reference.markdown import GENERATED, code, first_paragraph, table

_HEAD = """\
# Commands

`coterie COMMAND --help` prints the same text. See the [exit codes](../reference.md#exit-codes) of
commands. After `make run` or `make install` the program is `.venv/bin/coterie`."""


@dataclass(frozen=True)
class Option:
    written: str
    default: str
    meaning: str
    required: bool
    argument: bool


@dataclass(frozen=True)
class Command:
    name: str
    meaning: str
    options: tuple[Option, ...]

    @property
    def usage(self) -> str:
        arguments = [option for option in self.options if option.argument]
        options = [option for option in self.options if not option.argument]
        parts = [option.written if option.required else f"[{option.written}]" for option in arguments]
        parts += [option.written for option in options if option.required]
        return " ".join((self.name, *parts, *(["[OPTIONS]"] if any(not option.required for option in options) else [])))


def commands() -> Iterator[Command]:
    """Every command, in the order of `coterie --help`."""
    for name in COMMANDS:
        yield from _commands(get_command(load_command(name)), f"coterie {name}")


def commands_page() -> str:
    lines = [GENERATED, "", _HEAD, ""]
    all_commands = list(commands())
    for name, summary in COMMANDS.items():
        own = [command for command in all_commands if command.name.split()[1] == name]
        lines += [f"## coterie {name}", "", summary, ""]
        for command in own:
            if command.name != f"coterie {name}":
                lines += [f"### {command.name}", ""]
            lines += ["```", command.usage, "```", ""]
            if command.meaning != summary:
                lines += [command.meaning, ""]
            if command.options:
                rows = [(code(option.written), code(option.default), option.meaning) for option in command.options]
                lines += [*table(("argument or option", "default", "meaning"), rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _commands(command: Any, path: str) -> Iterator[Command]:
    if inner := getattr(command, "commands", None):
        for name, subcommand in inner.items():
            yield from _commands(subcommand, f"{path} {name}")
        return
    yield Command(path, first_paragraph(command.help), tuple(_option(param) for param in command.params))


def _option(param: Any) -> Option:
    argument = isinstance(param, TyperArgument)
    if argument:
        written = (param.metavar or param.name.upper()) + (" …" if param.nargs == -1 else "")
    else:
        written = ", ".join(param.opts) + ("" if param.is_flag else f" {param.metavar or param.name.upper()}")
    default = "" if param.default in (None, "", False, []) else str(param.default)
    return Option(written, default, first_paragraph(param.help), bool(param.required), argument)
