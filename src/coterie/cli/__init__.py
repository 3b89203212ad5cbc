"""The command line. One small file per command, imported only when that command is called.

`coterie --help` reads nothing but this table, so that it answers at once.
"""

from __future__ import annotations

import difflib
import errno
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

COMMANDS = {
    "serve": "Start Coterie and open it to this machine.",
    "chat": "Talk with a character, here in the terminal.",
    "desk": "Have a character get work done, here in the terminal.",
    "draft": "Work on a text with a character: ask, then review its proposals.",
    "cast": "Characters: make, list, show, import, export, delete.",
    "crowd": "A room full of personas around a stream: demo, run, replay.",
    "people": "Who may talk to your characters, and from which accounts.",
    "agent": "Remote agents: who plays which character; try one, or be one.",
    "matrix": "Matrix: start over, here or on the homeserver too.",
    "events": "Look at the log: filter it, follow it.",
    "models": "List, test and add language models.",
    "secrets": "Keep API keys encrypted, for the settings to refer to.",
    "password": "Set the password without which nobody comes in.",
    "verify": "Check that every view is what the log says.",
    "backup": "Copy the whole database while it is in use.",
    "restore": "Put a checked backup in the place of the database.",
    "purge": "Erase part of the log for good (privacy).",
    "cards": "Check character cards, or turn one into another format.",
    "doctor": "Look everything over and say what to do.",
}


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
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean `coterie {close[0]}`?" if close else "See `coterie --help`."
        print(f"There is no command {name}. {hint}", file=sys.stderr)
        sys.exit(2)
    _run(name, rest)


def _run(name: str, arguments: Sequence[str]) -> NoReturn:
    from coterie.base.errors import CoterieError
    from coterie.base.logging import LogSettings, setup_logging

    setup_logging(LogSettings(level="warning"))  # what a command says is its output; `serve` tells more
    command = importlib.import_module(f"coterie.cli.{name}").app
    try:
        command(arguments, prog_name=f"coterie {name}")
    except CoterieError as error:
        from coterie.base.redaction import redact

        print(redact(f"{error.what}\n→ {error.fix}"), file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        from coterie.base.errors import DiskFull, StorageError

        refused = DiskFull if error.errno == errno.ENOSPC else StorageError
        print(f"The system refused: {error}\n→ Check that there is room and that you may write there.", file=sys.stderr)
        sys.exit(refused.exit_code)
    sys.exit(0)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}   {summary}" for name, summary in COMMANDS.items()]
    return "\n".join(
        [
            "Coterie: a local-first engine for AI characters that remember.",
            "",
            "Usage: coterie COMMAND [OPTIONS]     (coterie COMMAND --help tells more)",
            "",
            *lines,
            "",
            "Data is kept in COTERIE_HOME (default: the platform's data folder).",
        ]
    )
