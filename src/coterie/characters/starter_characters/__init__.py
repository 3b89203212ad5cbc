"""Ready-made characters to start with."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from coterie.characters.errors import NoSuchCharacter
from coterie.characters.identity import Identity

STARTER_NAMES = ("maren", "teodor", "io")
_NOT_IDENTITY = frozenset({"in_short", "opening", "replies"})


@dataclass(frozen=True)
class AuthorReply:
    """A line by the character's author for messages like these. `{{user}}` is the name of the person."""

    messages: tuple[str, ...]
    text: str


@cache
def _fields(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def starter_character(name: str) -> Identity:
    """The identity of a ready-made character, with a new id."""
    key = name.strip().lower()
    if key not in STARTER_NAMES:
        raise NoSuchCharacter(f"There is no ready-made character {name}.", f"There are: {', '.join(STARTER_NAMES)}.")
    fields = {
        field: value.strip() if isinstance(value, str) else value
        for field, value in _fields(key).items()
        if field not in _NOT_IDENTITY
    }
    return Identity.model_validate(fields)


def starter_summary(name: str) -> str:
    """One line about a ready-made character."""
    return str(_fields(name)["in_short"])


def starter_portrait(name: str) -> bytes:
    """The drawn portrait of a ready-made character, as SVG."""
    return files(__package__).joinpath(f"{name}.svg").read_bytes()


def portrait_for(kickoff: str) -> bytes | None:
    """The portrait of the ready-made character that begins with this prose; None for any other."""
    prose = kickoff.strip()
    return next((starter_portrait(name) for name in STARTER_NAMES if _fields(name)["kickoff"].strip() == prose), None)


def opening_for(kickoff: str) -> Mapping[str, Any] | None:
    """The prepared opening scene for the kickoff of a ready-made character; None for any other."""
    prose = kickoff.strip()
    return next((_fields(name)["opening"] for name in STARTER_NAMES if _fields(name)["kickoff"].strip() == prose), None)


def replies_of(identity: Identity) -> tuple[AuthorReply, ...]:
    """The author's replies of a ready-made character, for models too small to reply well; none for any other."""
    prose = identity.kickoff.strip()
    for name in STARTER_NAMES:
        fields = _fields(name)
        if fields["name"] == identity.name and fields["kickoff"].strip() == prose:
            return tuple(AuthorReply(tuple(reply["to"]), reply["say"]) for reply in fields["replies"])
    return ()
