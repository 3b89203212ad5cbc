"""Characters to meet on the first evening: written with care, and yours to change once they are here."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from coterie.cast.errors import NoSuchCharacter
from coterie.cast.identity import Identity

NAMES = ("maren", "teodor", "io")


@cache
def _fields(name: str) -> dict[str, object]:
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def ready(name: str) -> Identity:
    """A new character from the shelf, with an id of its own."""
    wanted = name.strip().lower()
    if wanted not in NAMES:
        raise NoSuchCharacter(f"There is no ready-made character {name}.", f"There are: {', '.join(NAMES)}.")
    fields = {
        key: value.strip() if isinstance(value, str) else value
        for key, value in _fields(wanted).items()
        if key != "in_short"
    }
    return Identity.model_validate(fields)


def in_short(name: str) -> str:
    """One line about one of them."""
    return str(_fields(name)["in_short"])
