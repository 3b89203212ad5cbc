"""S9: "unknown fields and extensions kept, so import → export → import is lossless"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.characters.cards import Card, CardFormat, export_card, import_card
from coterie.characters.cards.parsing import Document, same_document
from coterie.characters.errors import CardError
from tests.characters.cards.samples import (
    FILES,
    SHARED,
    V1,
    V2,
    V3,
    charx_with,
    documents,
    files,
    packed,
    png_with,
    shared_cards,
    tiny_png,
)

FORMATS: tuple[CardFormat, ...] = get_args(CardFormat)


def again(card: Card, kind: CardFormat) -> Card:
    return import_card(export_card(card, kind).data, f"card.{kind}").card


@given(documents)
@settings(max_examples=300)
def test_s9_any_document_survives_every_format(document: Document) -> None:
    card = import_card(packed(document), "card.json").card
    assert same_document(card.document, document)
    for kind in FORMATS:
        assert again(card, kind) == card, kind


@given(documents, files, st.sampled_from([None, tiny_png(), tiny_png(trailing=b"after the end")]))
@settings(max_examples=150)
def test_s9_files_and_picture_survive_formats_that_contain_them(
    document: Document, content: dict[str, bytes], picture: bytes | None
) -> None:
    card = again(Card.read(document, content, picture), "charx")
    assert same_document(card.document, document)
    assert card.files == content
    for kind in ("png", "charx", "png", "charx"):
        assert again(card, kind) == card


@given(documents, st.lists(st.sampled_from(FORMATS), min_size=1, max_size=4))
@settings(max_examples=100)
def test_s9_a_card_survives_any_sequence_of_formats(document: Document, journey: list[CardFormat]) -> None:
    card = Card.read(document)
    for kind in journey:
        card = again(card, kind)
    assert same_document(card.document, document)


@pytest.mark.parametrize("document", [V1, V2, V3], ids=["V1", "V2", "V3"])
@pytest.mark.parametrize("kind", FORMATS)
def test_s9_each_version_survives_each_format(document: Document, kind: CardFormat) -> None:
    card = Card.read(document, FILES if kind != "json" else None, tiny_png() if kind != "json" else None)
    assert again(card, kind) == card


def test_s9_a_jpeg_before_the_zip_survives() -> None:
    jpeg = b"\xff\xd8\xff\xe0 not much of a picture \xff\xd9"
    imported = import_card(charx_with(V3, FILES, before=jpeg), "ada.charx")
    assert imported.card.picture == jpeg
    exported = export_card(imported.card, "charx").data
    assert exported.startswith(jpeg)
    assert import_card(exported, "ada.charx").card == imported.card


@given(documents)
@settings(max_examples=100)
def test_s9_json_can_be_had_as_v2_or_v3_and_keeps_every_field(document: Document) -> None:
    card = Card.read(document)
    for version in ("v2", "v3"):
        other = import_card(export_card(card, "json", version).data, "other.json").card
        kept = {name: value for name, value in card.fields.items() if name not in ("character_book", "spec")}
        assert same_document({name: other.fields[name] for name in kept}, kept)
        assert other.data == card.data
    if card.generation in (2, 3):
        assert import_card(export_card(card, "json", "v2").data, "c").card.generation == 2


def test_s9_what_json_cannot_contain_is_reported() -> None:
    assert export_card(Card.read(V3, FILES, tiny_png()), "json").left_behind == ["2 embedded files", "the picture"]
    assert export_card(Card.read(V3), "json").left_behind == []


def test_s9_an_edit_of_the_newer_text_takes_precedence() -> None:
    """A card of ours that another program changed: its V3 text wins over the V2 we wrote beside it."""
    exported = import_card(png_with(V2), "a.png").card
    v3 = json.loads(export_card(exported, "json", "v3").data)
    v3["data"]["description"] = "Edited elsewhere."
    edited = charx_with(v3, {"coterie.json": packed({"original": V2})})
    card = import_card(edited, "a.charx").card
    assert card.generation == 3
    assert card.data.description == "Edited elsewhere."


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is not there: the shared example cards are not installed")
@pytest.mark.parametrize("path", shared_cards(), ids=lambda path: path.name)
def test_s9_every_example_imports_and_survives_or_is_refused_with_a_reason(path: Path) -> None:
    data = path.read_bytes()
    if path.name.startswith("invalid"):
        with pytest.raises(CardError) as refused:
            import_card(data, path.name)
        assert refused.value.what
        assert refused.value.fix
        return
    imported = import_card(data, path.name)
    assert imported.notes == []
    assert again(imported.card, imported.format) == imported.card
    for kind in FORMATS:
        assert same_document(again(imported.card, kind).document, imported.card.document)
    if path.suffix == ".json":
        assert same_document(imported.card.document, json.loads(data))
