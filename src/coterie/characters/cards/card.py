"""A character card of any version, and conversions between versions.

The document is kept exactly as it was read, with unknown fields, so that it is exported unchanged; all typed fields are
derived from it. Conversions lose nothing: a field that a version does not have stays as an unknown field.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ConfigDict, SkipValidation, ValidationError

from coterie.characters.cards.lorebook import Lorebook, split_decorators
from coterie.characters.cards.parsing import (
    CommaList,
    Document,
    Text,
    Texts,
    as_number,
    as_object,
    same_document,
    text_or_empty,
)
from coterie.characters.errors import BrokenCard, CardError, NotACard

# The first spelling is the specification's, and common.
_EMBEDDED = ("embeded://", "embedded://", "__asset:")


class CardAsset(BaseModel):
    """A picture or sound of a card, and its address. Only files inside the card are ever read."""

    model_config = ConfigDict(frozen=True)

    type: str
    uri: str
    name: str
    ext: str

    @classmethod
    def read(cls, raw: Document) -> Self:
        return cls(**{field: text_or_empty(raw.get(field)) for field in ("type", "uri", "name", "ext")})

    def inline_bytes(self) -> bytes | None:
        """The content of a `data:` address."""
        if not self.uri.lower().startswith("data:") or "," not in self.uri:
            return None
        head, body = self.uri.split(",", 1)
        if not head.lower().endswith(";base64"):
            return unquote_to_bytes(body)
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError):
            return None


def embedded_path(uri: str) -> str | None:
    """The path inside the card's file, if the address is one."""
    for scheme in _EMBEDDED:
        if uri.lower().startswith(scheme):
            return uri[len(scheme) :]
    return None


_SPEC = re.compile(r"chara_card_v(\d{1,3})", re.IGNORECASE)
NEWEST_SPEC = 3.0


class CardData(BaseModel):
    """The fields of a card of any version; missing ones are empty."""

    model_config = ConfigDict(frozen=True)

    name: Text
    description: Text = ""
    personality: Text = ""
    scenario: Text = ""
    first_mes: Text = ""
    mes_example: Text = ""
    creator_notes: Text = ""
    system_prompt: Text = ""
    post_history_instructions: Text = ""
    alternate_greetings: Texts = []
    group_only_greetings: Texts = []
    tags: CommaList = []
    creator: Text = ""
    character_version: Text = ""
    nickname: Text = ""
    source: Texts = []


class PromptParts(BaseModel):
    """The fields of a card that a model may see; notes, tags, creator and version are for people."""

    model_config = ConfigDict(frozen=True)

    char: str
    """The value of `{{char}}`."""
    system_prompt: str
    description: str
    personality: str
    scenario: str
    mes_example: str
    post_history_instructions: str
    greetings: list[str]
    group_only_greetings: list[str]


class Card(BaseModel):
    model_config = ConfigDict(frozen=True)

    document: SkipValidation[Document]
    """The card's JSON as it was read."""
    files: dict[str, bytes] = {}
    """Its embedded files, by path: `assets/icon/main.png`."""
    picture: bytes | None = None
    """A PNG without the card's own chunks, or the JPEG before a CHARX."""

    @classmethod
    def read(cls, document: Document, files: Mapping[str, bytes] | None = None, picture: bytes | None = None) -> Self:
        """Read a card of any version; `CardError` if it is not one."""
        card = cls(document=document, files=dict(files or {}), picture=picture)
        _ = card.data
        return card

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Card)
            and same_document(self.document, other.document)
            and self.files == other.files
            and self.picture == other.picture
        )

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def generation(self) -> int:
        """The major version: 1, 2, 3 or later."""
        spec = self.document.get("spec")
        if spec in (None, ""):
            if "first_mes" in self.document:
                return 1
            raise NotACard(
                "This is not a character card: it has neither `spec` nor `first_mes`.",
                "Export it as a V2 or V3 character card.",
            )
        if spec == "lorebook_v3":
            raise NotACard("This is a lorebook, not a character.", "Import it as a lorebook.")
        match = _SPEC.fullmatch(spec.strip()) if isinstance(spec, str) else None
        if match is None or int(match[1]) < 2:
            raise NotACard(
                f"This is not a character card: its `spec` is {str(spec)[:60]!r}.",
                "A card says `chara_card_v2` or `chara_card_v3`.",
            )
        return int(match[1])

    @cached_property
    def fields(self) -> Document:
        """The character's fields: the document of a V1 card, `data` of later ones."""
        if self.generation == 1:
            return self.document
        data = self.document.get("data")
        if not isinstance(data, dict):
            raise BrokenCard("The card has no `data`: the character is missing.", "Export it again from its source.")
        return data

    @cached_property
    def data(self) -> CardData:
        try:
            data = CardData.model_validate(self.fields)
        except ValidationError as error:
            field = ".".join(map(str, error.errors()[0]["loc"]))
            what = "is missing" if error.errors()[0]["type"] == "missing" else "is not text"
            raise BrokenCard(f"The card's `{field}` {what}.", "Correct that field, or export the card again.") from None
        if not data.name.strip():
            raise BrokenCard("The card's `name` is empty.", "Give the character a name.")
        return data

    @property
    def spec_version(self) -> float:
        number = as_number(self.document.get("spec_version"))
        return float(number) if number is not None and abs(number) < 1e6 else float(self.generation)

    @property
    def is_newer(self) -> bool:
        return max(self.spec_version, float(self.generation)) > NEWEST_SPEC

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def char(self) -> str:
        """The value of `{{char}}`: the nickname, else the name."""
        return self.data.nickname.strip() or self.data.name

    @property
    def extensions(self) -> Document:
        return as_object(self.fields.get("extensions"))

    @cached_property
    def lorebook(self) -> Lorebook | None:
        book = self.fields.get("character_book")
        return Lorebook(document=book) if isinstance(book, dict) and book.get("entries") else None

    @cached_property
    def assets(self) -> list[CardAsset]:
        listed = self.fields.get("assets")
        if not isinstance(listed, list):
            return [CardAsset(type="icon", uri="ccdefault:", name="main", ext="png")]
        return [CardAsset.read(item) for item in listed if isinstance(item, dict)]

    def asset_bytes(self, asset: CardAsset) -> bytes | None:
        """The asset's content if it is inside the card; nothing is downloaded."""
        if asset.uri == "ccdefault:":
            return self.picture if asset.type == "icon" else None
        if (path := embedded_path(asset.uri)) is not None:
            return self.files.get(path)
        return asset.inline_bytes()

    @property
    def main_icon(self) -> bytes | None:
        icons = [asset for asset in self.assets if asset.type == "icon"]
        chosen = next((asset for asset in icons if asset.name == "main"), icons[0] if icons else None)
        return self.asset_bytes(chosen) if chosen else None

    def prompt_parts(self) -> PromptParts:
        data = self.data
        return PromptParts(
            char=self.char,
            system_prompt=data.system_prompt,
            description=data.description,
            personality=data.personality,
            scenario=data.scenario,
            mes_example=data.mes_example,
            post_history_instructions=data.post_history_instructions,
            greetings=[data.first_mes, *data.alternate_greetings],
            group_only_greetings=data.group_only_greetings,
        )

    def with_fields(self, **changes: Any) -> Card:
        """The card with changed fields, also in the flat copy beside `data` that some programs write."""
        if self.generation == 1:
            return Card.read({**self.document, **changes}, self.files, self.picture)
        copies = {name: value for name, value in changes.items() if name in self.document}
        document = {**self.document, **copies, "data": {**self.fields, **changes}}
        return Card.read(document, self.files, self.picture)


CardFormat = Literal["json", "png", "charx"]


class ImportedCard(NamedTuple):
    card: Card
    format: CardFormat
    notes: list[str]
    """Irregularities of the file."""


BACKFILLED = (
    "This is a Character Card V3, loaded as a V2. Use a program that reads V3 to have all of this character.\n\n"
)

_V2_FIELDS: Document = {
    **dict.fromkeys(("name", "description", "personality", "scenario", "first_mes", "mes_example"), ""),
    **dict.fromkeys(("creator_notes", "system_prompt", "post_history_instructions"), ""),
    "alternate_greetings": [],
    "tags": [],
    "creator": "",
    "character_version": "",
    "extensions": {},
}


def as_v2(card: Card) -> Document:
    if card.generation == 2:
        return card.document
    envelope = {} if card.generation == 1 else card.document
    flat = {name: value for name, value in card.fields.items() if card.generation > 1 or name not in _ENVELOPE}
    return {**envelope, "spec": "chara_card_v2", "spec_version": "2.0", "data": {**_V2_FIELDS, **flat}}


def as_v3(card: Card) -> Document:
    if card.generation >= 3:
        return card.document
    document = as_v2(card)
    data = {**document["data"]}
    data.setdefault("group_only_greetings", [])
    if isinstance(book := data.get("character_book"), dict) and isinstance(book.get("entries"), list):
        data["character_book"] = {**book, "entries": [_with_regex_flag(entry) for entry in book["entries"]]}
    return {**document, "spec": "chara_card_v3", "spec_version": "3.0", "data": data}


def backfill(card: Card) -> Document:
    """A V3 card for programs that read only V2: with a note that says so, and without decorators."""
    document = as_v2(card)
    data = {**document["data"], "creator_notes": BACKFILLED + card.data.creator_notes}
    if isinstance(book := data.get("character_book"), dict) and isinstance(book.get("entries"), list):
        data["character_book"] = {**book, "entries": [_undecorated(entry) for entry in book["entries"]]}
    return {**document, "data": data}


def older_if_unchanged(newest: Document, older: Document) -> Document:
    """The older document if the newest one is only its conversion, else the newest."""
    try:
        card = Card.read(older)
        unchanged = card.generation < 3 and same_document(as_v3(card), newest)
    except CardError:
        return newest
    return older if unchanged else newest


_ENVELOPE = ("spec", "spec_version")


def _with_regex_flag(entry: Any) -> Any:
    return {"use_regex": False, **entry} if isinstance(entry, dict) else entry


def _undecorated(entry: Any) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
        return entry
    return {**entry, "content": split_decorators(entry["content"])[1]}
