"""A character card. Its document is kept exactly as it was read, with every field anybody ever put there;
everything typed is a reading of it that can be thrown away. So what came in goes out again unchanged.
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

# An asset of a card: a picture or sound, and where it is. Only what travels with the card is ever read.


# The specification spells the first one wrong, and so does everybody.
_EMBEDDED = ("embeded://", "embedded://", "__asset:")


class CardAsset(BaseModel):
    model_config = ConfigDict(frozen=True)

    type: str
    uri: str
    name: str
    ext: str

    @classmethod
    def read(cls, raw: Document) -> Self:
        return cls(**{field: text_or_empty(raw.get(field)) for field in ("type", "uri", "name", "ext")})

    def inline_bytes(self) -> bytes | None:
        """What a `data:` address holds."""
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
    """The path inside the card's file that an address means."""
    for scheme in _EMBEDDED:
        if uri.lower().startswith(scheme):
            return uri[len(scheme) :]
    return None


_SPEC = re.compile(r"chara_card_v(\d{1,3})", re.IGNORECASE)
NEWEST_SPEC = 3.0


class CardData(BaseModel):
    """A card's fields, whichever version it is; what is missing is empty."""

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
    """All of a card that a model may see. Notes, tags, creator and version are for people."""

    model_config = ConfigDict(frozen=True)

    char: str
    """What `{{char}}` stands for."""
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
    """What travels with it, by path: `assets/icon/main.png`."""
    picture: bytes | None = None
    """A PNG without the card's own chunks, or what stood before a CHARX (a JPEG)."""

    @classmethod
    def read(cls, document: Document, files: Mapping[str, bytes] | None = None, picture: bytes | None = None) -> Self:
        """A card of any version, or an error that says what is missing."""
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

    __hash__ = None  # type: ignore[assignment]  # as Python itself marks what cannot be hashed

    @cached_property
    def generation(self) -> int:
        """1, 2 or 3; what comes after 3 is told by its own number."""
        spec = self.document.get("spec")
        if spec in (None, ""):
            if "first_mes" in self.document:
                return 1
            raise NotACard(
                "This is not a character card: it has no `spec`, and no `first_mes` as the first cards had.",
                "Export it as a V2 or V3 character card.",
            )
        if spec == "lorebook_v3":
            raise NotACard("This is a lorebook, not a character.", "Import it as a lorebook.")
        found = _SPEC.fullmatch(spec.strip()) if isinstance(spec, str) else None
        if found is None or int(found[1]) < 2:
            raise NotACard(
                f"This is not a character card: its `spec` is {str(spec)[:60]!r}.",
                "A card says `chara_card_v2` or `chara_card_v3`.",
            )
        return int(found[1])

    @cached_property
    def fields(self) -> Document:
        """Where the character's fields are: the flat document of a V1 card, `data` of the others."""
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
            what = "is missing" if error.errors()[0]["type"] == "missing" else "holds something other than text"
            raise BrokenCard(f"The card's `{field}` {what}.", "Mend that field, or export the card again.") from None
        if not data.name.strip():
            raise BrokenCard("The card's `name` is empty.", "Give the character a name.")
        return data

    @property
    def spec_version(self) -> float:
        """The version as a number, so that a newer one can be told from an older one."""
        told = as_number(self.document.get("spec_version"))
        return float(told) if told is not None and abs(told) < 1e6 else float(self.generation)

    @property
    def is_newer(self) -> bool:
        return max(self.spec_version, float(self.generation)) > NEWEST_SPEC

    @property
    def name(self) -> str:
        return self.data.name

    @property
    def char(self) -> str:
        """What `{{char}}` stands for: the nickname, else the name."""
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
        """What the asset is, when it travels with the card. Nothing is ever fetched."""
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
        """A card with other fields; all else stays. A flat copy beside `data`, as some programs keep, follows."""
        if self.generation == 1:
            return Card.read({**self.document, **changes}, self.files, self.picture)
        copies = {name: value for name, value in changes.items() if name in self.document}
        document = {**self.document, **copies, "data": {**self.fields, **changes}}
        return Card.read(document, self.files, self.picture)


# What an import gives: the card, the format it came in, and what was odd about the file.


CardFormat = Literal["json", "png", "charx"]


class ImportedCard(NamedTuple):
    card: Card
    format: CardFormat
    notes: list[str]


# One version of a card as another, losing nothing: what a version has no word for stays as an unknown field.
#
# Containers carry the newest version for programs that want it. The card as it was is written beside it, and
# is taken back on import when it still says the same; if somebody edited the newer one, that one counts.


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
    """A V3 card for programs that know only V2: says so in its notes, and is without decorators."""
    document = as_v2(card)
    data = {**document["data"], "creator_notes": BACKFILLED + card.data.creator_notes}
    if isinstance(book := data.get("character_book"), dict) and isinstance(book.get("entries"), list):
        data["character_book"] = {**book, "entries": [_undecorated(entry) for entry in book["entries"]]}
    return {**document, "data": data}


def older_if_unchanged(newest: Document, older: Document) -> Document:
    """The older card, when the newest says exactly what it said; the newest otherwise."""
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
