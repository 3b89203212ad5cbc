"""How a character was before: every version of it, and what each one changed. S1"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from coterie.cast.identity import Identity
from coterie.cast.roster import Character

FIELDS = {
    "name": "Name",
    "persona": "Persona",
    "traits": "Traits",
    "backstory": "Backstory",
    "initial_relationship": "How you know each other",
    "voice_samples": "Voice samples",
    "kickoff": "Opening prose",
}


@dataclass(frozen=True)
class FieldChange:
    label: str
    lines: list[tuple[str, str]]
    """With the mark `+`, `-` or a space."""


@dataclass(frozen=True)
class CharacterVersion:
    number: int
    identity: Identity
    written: datetime | None
    changes: list[FieldChange]
    """Against the version before; of the first there are none."""


def version_history(bots: Sequence[Character], written: Mapping[int, datetime]) -> list[CharacterVersion]:
    """Newest first."""
    made = []
    before: Identity | None = None
    for bot in bots:
        changes = _changes(before, bot.identity) if before is not None else []
        made.append(CharacterVersion(bot.version, bot.identity, written.get(bot.version), changes))
        before = bot.identity
    return made[::-1]


def _changes(before: Identity, after: Identity) -> list[FieldChange]:
    found = []
    for name, label in FIELDS.items():
        old, new = _lines(getattr(before, name)), _lines(getattr(after, name))
        if old != new:
            # Lines that only hint where in a line something changed are for terminals.
            marked = [line for line in difflib.ndiff(old, new) if not line.startswith("?")]
            found.append(FieldChange(label, [(line[0], line[2:]) for line in marked]))
    return found


def _lines(value: str | list[str]) -> list[str]:
    return value.splitlines() if isinstance(value, str) else [line for item in value for line in item.splitlines()]
