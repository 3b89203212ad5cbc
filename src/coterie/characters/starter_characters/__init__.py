"""Characters to meet on the first evening: written with care, and yours to change once they are here."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from coterie.characters.errors import NoSuchCharacter
from coterie.characters.identity import Identity

STARTER_NAMES = ("maren", "teodor", "io")
_BESIDE = frozenset({"in_short", "opening"})
"""What is told of them but is not who they are."""


@cache
def _fields(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def starter_character(name: str) -> Identity:
    """A new character from the shelf, with an id of its own."""
    wanted = name.strip().lower()
    if wanted not in STARTER_NAMES:
        raise NoSuchCharacter(f"There is no ready-made character {name}.", f"There are: {', '.join(STARTER_NAMES)}.")
    fields = {
        key: value.strip() if isinstance(value, str) else value
        for key, value in _fields(wanted).items()
        if key not in _BESIDE
    }
    return Identity.model_validate(fields)


def starter_summary(name: str) -> str:
    """One line about one of them."""
    return str(_fields(name)["in_short"])


def opening_for(kickoff: str) -> Mapping[str, Any] | None:
    """The scene that the opening prose of one of them sets, read beforehand; None for anybody else's prose."""
    prose = kickoff.strip()
    return next((_fields(name)["opening"] for name in STARTER_NAMES if _fields(name)["kickoff"].strip() == prose), None)
