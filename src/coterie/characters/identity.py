"""The identity of a character, and its conversion from and to a card.

A card has other fields than an identity, so both are kept: an unchanged card is exported as it was imported, and an
identity is restored exactly from its own card. Changes made to the card elsewhere take precedence.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from coterie.base.ids import new_id
from coterie.base.values import Name, Prose
from coterie.characters.cards.card import Card
from coterie.characters.cards.parsing import Document, as_object, comma_list
from coterie.characters.errors import BadCharacter

_EXTENSION = "coterie"
_START = re.compile(r"^[ \t]*<START>[ \t]*$", re.IGNORECASE | re.MULTILINE)
_DASHES = re.compile(r"^[ \t]*---[ \t]*$", re.MULTILINE)
_CARD_FIELDS = ("name", "description", "personality", "scenario", "first_mes", "mes_example")
"""The fields of a card from which an identity is made."""
_MAX_TRAIT = 40


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
    """Prose from which the opening scene is generated."""

    @classmethod
    def create(cls, **fields: Any) -> Self:
        """From what a person typed or a file holds; raises `BadCharacter` if it has no name."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise _bad_character(error) from None

    @classmethod
    def from_form(cls, *, voice_samples: str = "", traits: str = "", **fields: Any) -> Self:
        """From a form: voice samples are separated by lines `---`, traits by commas."""
        return cls.create(voice_samples=split_samples(voice_samples), traits=comma_list(traits), **fields)

    @classmethod
    def from_card(cls, card: Card, id: str | None = None) -> Self:  # noqa: A002 - the field's own name
        fields = _embedded_identity(card) or _read_fields(card)
        return cls.create(id=id or new_id(), **fields)

    def to_card(self, original: Card | None = None) -> Card:
        """The original card with the changed fields; a new V3 card if there is none."""
        identity = self.model_dump(exclude={"id"})
        if original is not None and (_embedded_identity(original) or _read_fields(original)) == identity:
            return original
        card = original or Card.read(_EMPTY | {"data": {**_EMPTY["data"], "name": self.name}})
        card = card.with_fields(**_changes(identity, _read_fields(original) if original else None))
        embedded = {"identity": identity, "seal": _fields_checksum(card)}
        return card.with_fields(extensions={**card.extensions, _EXTENSION: embedded})


class IdentityFields(BaseModel):
    """What a character can be saved with; a stored identity may exceed these limits."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    name: Name
    persona: Prose = ""
    voice_samples: Annotated[list[Prose], Field(max_length=1_000)] = []
    traits: Annotated[list[Prose], Field(max_length=1_000)] = []
    backstory: Prose = ""
    initial_relationship: Prose = ""
    kickoff: Prose = ""
    """Prose from which the opening scene is proposed."""


def check_identity(identity: Identity) -> None:
    """Raise `BadCharacter` if it exceeds the limits; to be called before it is stored."""
    try:
        IdentityFields.model_validate(identity.model_dump())
    except ValidationError as error:
        raise _bad_character(error) from None


def _bad_character(error: ValidationError) -> BadCharacter:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the character"
    return BadCharacter(f"This cannot be a character: {where}: {first['msg']}.", "Correct it; nothing was stored.")


def split_samples(text: str) -> list[str]:
    return [sample.strip() for sample in _DASHES.split(text) if sample.strip()]


_EMPTY: Document = {
    "spec": "chara_card_v3",
    "spec_version": "3.0",
    "data": {
        **dict.fromkeys((*_CARD_FIELDS, "creator_notes", "system_prompt", "post_history_instructions"), ""),
        "alternate_greetings": [],
        "group_only_greetings": [],
        "tags": [],
        "creator": "",
        "character_version": "",
        "extensions": {},
    },
}


def _read_fields(card: Card) -> Document:
    """An identity from the common fields of a card."""
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


def _changes(identity: Document, before: Document | None) -> Document:
    """The card's fields that have to change."""

    def is_changed(*names: str) -> bool:
        return before is None or any(identity[name] != before[name] for name in names)

    changes: Document = {}
    if is_changed("name"):
        changes["name"] = identity["name"]
    if is_changed("persona", "traits", "backstory"):
        changes["description"] = _paragraphs([identity["persona"], identity["backstory"]])
        changes["personality"] = ", ".join(identity["traits"])
    if is_changed("voice_samples"):
        changes["mes_example"] = "\n".join(f"<START>\n{sample}" for sample in identity["voice_samples"])
    if is_changed("kickoff", "initial_relationship"):
        changes["scenario"] = identity["initial_relationship"]
        changes["first_mes"] = identity["kickoff"]
    return changes


def _embedded_identity(card: Card) -> Document | None:
    """The identity that we wrote into the card, unless its fields were changed since."""
    embedded = as_object(card.extensions.get(_EXTENSION))
    if not embedded or embedded.get("seal") != _fields_checksum(card):
        return None
    try:
        return Identity.model_validate({"id": "", **as_object(embedded.get("identity"))}).model_dump(exclude={"id"})
    except ValidationError:
        return None


def _fields_checksum(card: Card) -> str:
    content = json.dumps([card.fields.get(name) for name in _CARD_FIELDS], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _as_traits(personality: str) -> list[str]:
    """The personality as a list of traits; empty if it is prose."""
    words = comma_list(personality)
    is_list = "\n" not in personality.strip() and all(
        len(word) <= _MAX_TRAIT and not word.endswith((".", "!", "?")) for word in words
    )
    return words if is_list else []


def _paragraphs(texts: list[str]) -> str:
    return "\n\n".join(text for text in texts if text.strip())
