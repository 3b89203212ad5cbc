"""One version of a card as another, losing nothing: what a version has no word for stays as an unknown field.

Containers carry the newest version for programs that want it. The card as it was is written beside it, and
is taken back on import when it still says the same; if somebody edited the newer one, that one counts.
"""

from __future__ import annotations

from typing import Any

from coterie.cast.cards.card import Card
from coterie.cast.cards.decorators import split_decorators
from coterie.cast.cards.document import Document, same_document
from coterie.cast.errors import CardError

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
