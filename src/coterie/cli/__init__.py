"""The command line: a table of commands, each implemented in a module that is imported only when it is called.

`coterie --help` needs nothing but this table, which keeps it fast.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer

COMMANDS = {
    "serve": "Start the server, reachable from this machine.",
    "chat": "Chat with a character in the terminal.",
    "desk": "Give a character work to do, in the terminal.",
    "draft": "Work on a text with a character: ask, then review its proposals.",
    "characters": "Create, list, show, import, export and delete characters.",
    "crowd": "A live chat of many personas around a stream: demo, run, replay.",
    "people": "Manage who may talk to your characters, and from which accounts.",
    "agent": "List and check remote agents, or run one.",
    "telegram": "Connect a Telegram bot, through which people talk to your characters.",
    "discord": "Connect a Discord bot, through which people talk to your characters.",
    "matrix": "Connect an account on Matrix, or reset the connection.",
    "events": "Show, filter and follow the event log.",
    "models": "List, test and add language models.",
    "secrets": "Store API keys encrypted, for the settings to refer to.",
    "settings": "Show settings, or change them in the configuration file.",
    "password": "Set or remove the password of the web page.",
    "verify": "Check the database: the file, the log and every projection.",
    "backup": "Copy the whole database, also while a server runs.",
    "restore": "Replace the database with a backup, after checking it.",
    "purge": "Erase part of the log permanently, for privacy.",
    "import": "Take over characters, chats and more from SillyTavern.",
    "cards": "Check character cards, or convert one to another format.",
    "doctor": "Check this installation and report what to fix.",
}
"""Command → the sentence that describes it in every help text."""

_MODULES = {
    "serve": "server",
    "doctor": "server",
    "password": "server",
    "cards": "characters",
    "import": "sillytavern",
    "secrets": "models",
    **dict.fromkeys(("backup", "restore", "verify", "purge", "events"), "data"),
}
"""Command → its module, where that is not named like the command."""
_INTERNAL_ERROR = 70
"""The exit code of an error that no code expected, `EX_SOFTWARE` of sysexits.h."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_help())
        sys.exit(0)
    if arguments[0] in ("-V", "--version"):
        from coterie import __version__

        print(f"coterie {__version__}")
        sys.exit(0)
    name, *rest = arguments
    if any("\ud800" <= letter <= "\udfff" for argument in arguments for letter in argument):
        print(
            "An argument is not valid UTF-8.\n→ Rename the file, or check the encoding of the terminal.",
            file=sys.stderr,
        )
        sys.exit(2)
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean `coterie {close[0]}`?" if close else "See `coterie --help`."
        print(f"There is no command {name}. {hint}", file=sys.stderr)
        sys.exit(2)
    _run(name, rest)


def load_command(name: str) -> typer.Typer:
    """Import the module of a command and return its Typer application."""
    module = importlib.import_module(f"coterie.cli.{_MODULES.get(name, name)}")
    app: typer.Typer = getattr(module, f"{name}_app")
    return app


def _run(name: str, arguments: Sequence[str]) -> NoReturn:
    from coterie.base.errors import CoterieError
    from coterie.base.logging import LogSettings, setup_logging

    setup_logging(LogSettings(level="warning"))  # `serve` replaces this with the configured level
    command = load_command(name)
    try:
        command(arguments, prog_name=f"coterie {name}")
    except CoterieError as error:
        from coterie.base.redaction import redact

        print(redact(f"{error.what}\n→ {error.fix}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        from coterie.base.errors import DiskFull, StorageError

        error_class = DiskFull if error.errno == errno.ENOSPC else StorageError
        print(f"The system refused: {error}\n→ Check the free space and the permissions there.", file=sys.stderr)
        sys.exit(error_class.exit_code)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        from coterie.base.redaction import redact

        print(redact(f"Internal error ({type(error).__name__}: {error})."), file=sys.stderr)
        print("→ Please report it; `python -X dev -m coterie …` shows where it happened.", file=sys.stderr)
        sys.exit(_INTERNAL_ERROR)
    sys.exit(0)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}   {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "Coterie: a local-first server for AI characters with long-term memory.",
            "",
            "Usage: coterie COMMAND [OPTIONS]     (coterie COMMAND --help shows the options)",
            "",
            *lines,
            "",
            "Data is kept in COTERIE_HOME (default: the platform's data folder).",
        ]
    )
