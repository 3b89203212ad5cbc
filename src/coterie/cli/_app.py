"""How a command is made: plain help, no stack traces of ours, nothing heavy imported."""

from __future__ import annotations

import typer


def new_app(help_text: str) -> typer.Typer:
    return typer.Typer(
        help=help_text,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        no_args_is_help=False,
    )
