"""Who a character is, as its author wrote it, and the same as a card.

A card has other fields than we have, so both are kept: a card that nobody changed goes out as it came in, and
an identity comes back from its card word for word. If somebody edited the card elsewhere, what they wrote counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.base.ids import new_id
from coterie.characters.cards.card import Card
from coterie.characters.cards.parsing import Document, as_object, comma_list

_OURS = "coterie"
_START = re.compile(r"^[ \t]*<START>[ \t]*$", re.IGNORECASE | re.MULTILINE)
_DASHES = re.compile(r"^[ \t]*---[ \t]*$", re.MULTILINE)
_WRITTEN = ("name", "description", "personality", "scenario", "first_mes", "mes_example")
"""The card's fields that an identity is made of."""
_LONGEST_TRAIT = 40


class Identity(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(default_factory=new_id)
    name: str = Field(pattern=r"\S")
    persona: str = ""
    voice_samples: list[str] = []
    traits: list[str] = []
    backstory: str = ""
    initial_relationship: str = ""
    kickoff: str = ""
    """Prose from which the opening scene is made."""

    @classmethod
    def from_form(cls, *, voice_samples: str = "", traits: str = "", **fields: Any) -> Self:
        """As the form gives it: samples split on a line `---`, traits on commas."""
        return cls(voice_samples=split_samples(voice_samples), traits=comma_list(traits), **fields)

    @classmethod
    def from_card(cls, card: Card, id: str | None = None) -> Self:  # noqa: A002 - the field's own name
        found = _embedded_identity(card) or _read(card)
        return cls(id=id or new_id(), **found)

    def to_card(self, original: Card | None = None) -> Card:
        """The card it came from, with only what has changed since; a new V3 card when there is none."""
        ours = self.model_dump(exclude={"id"})
        if original is not None and (_embedded_identity(original) or _read(original)) == ours:
            return original
        card = original or Card.read(_EMPTY | {"data": {**_EMPTY["data"], "name": self.name}})
        card = card.with_fields(**_changes(ours, _read(original) if original else None))
        sealed = {"identity": ours, "seal": _fields_checksum(card)}
        return card.with_fields(extensions={**card.extensions, _OURS: sealed})


def split_samples(text: str) -> list[str]:
    return [sample.strip() for sample in _DASHES.split(text) if sample.strip()]


_EMPTY: Document = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        **dict.fromkeys((*_WRITTEN, "creator_notes", "system_prompt", "post_history_instructions"), ""),
        "alternate_greetings": [],
        "group_only_greetings": [],
        "tags": [],
        "creator": "",
        "character_version": "",
        "extensions": {},
    },
}


def _read(card: Card) -> Document:
    """An identity from the fields any card has."""
    data = card.data
    traits = _as_traits(data.personality)
    persona = [data.description] if traits else [data.description, data.personality]
    return {
        "name": data.name,
        "persona": _paragraphs(persona),
        "voice_samples": [sample.strip() for sample in _START.split(data.mes_example) if sample.strip()],
        "traits": traits,
        "backstory": "",
        "initial_relationship": "",
        "kickoff": _paragraphs([data.scenario, data.first_mes]),
    }


def _changes(ours: Document, before: Document | None) -> Document:
    """The card's fields that must be written anew, for programs that read only those."""

    def changed(*names: str) -> bool:
        return before is None or any(ours[name] != before[name] for name in names)

    changes: Document = {}
    if changed("name"):
        changes["name"] = ours["name"]
    if changed("persona", "traits", "backstory"):
        changes["description"] = _paragraphs([ours["persona"], ours["backstory"]])
        changes["personality"] = ", ".join(ours["traits"])
    if changed("voice_samples"):
        changes["mes_example"] = "\n".join(f"<START>\n{sample}" for sample in ours["voice_samples"])
    if changed("kickoff", "initial_relationship"):
        changes["scenario"] = ours["initial_relationship"]
        changes["first_mes"] = ours["kickoff"]
    return changes


def _embedded_identity(card: Card) -> Document | None:
    """The identity we wrote into the card, while the fields beside it are still those we wrote."""
    kept = as_object(card.extensions.get(_OURS))
    if not kept or kept.get("seal") != _fields_checksum(card):
        return None
    try:
        return Identity.model_validate({"id": "", **as_object(kept.get("identity"))}).model_dump(exclude={"id"})
    except ValidationError:
        return None


def _fields_checksum(card: Card) -> str:
    told = json.dumps([card.fields.get(name) for name in _WRITTEN], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _as_traits(personality: str) -> list[str]:
    """Personality is a list of words on some cards, and prose on others."""
    words = comma_list(personality)
    listed = "\n" not in personality.strip() and all(
        len(word) <= _LONGEST_TRAIT and not word.endswith((".", "!", "?")) for word in words
    )
    return words if listed else []


def _paragraphs(texts: list[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())
