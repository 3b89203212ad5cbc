"""S9, "Cards, precisely": what a card is, and what of it a model may see."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.characters.cards import Card
from coterie.characters.errors import BrokenCard, CardError, NotACard
from tests.characters.cards.samples import FILES, V1, V2, V3, tiny_png


def v2(**data: Any) -> Card:
    return Card.read({"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Ada", **data}})


def test_s9_no_spec_but_first_mes_is_v1() -> None:
    card = Card.read(V1)
    assert card.generation == 1
    assert card.data.first_mes == "Come in, quick!"


@pytest.mark.parametrize("empty", [None, ""])
def test_s9_an_empty_spec_is_no_spec(empty: object) -> None:
    assert Card.read({**V1, "spec": empty}).generation == 1


@pytest.mark.parametrize(
    ("document", "error", "reason"),
    [
        ({"data": {"name": "Ada", "description": "x"}}, NotACard, "neither `spec`"),
        ({"spec": "chara_card_v2", "data": {"description": "x"}}, BrokenCard, "`name` is missing"),
        ({"spec": "chara_card_v2", "data": {"name": "  "}}, BrokenCard, "`name` is empty"),
        ({"spec": "chara_card_v2", "name": "Ada"}, BrokenCard, "no `data`"),
        ({"spec": "chara_card_v2", "data": {"name": "A", "description": {}}}, BrokenCard, "`description`"),
        ({"spec": "something", "data": {"name": "A"}}, NotACard, "'something'"),
        ({"spec": 5, "data": {"name": "A"}}, NotACard, "5"),
        ({"spec": "lorebook_v3", "data": {"entries": []}}, NotACard, "lorebook"),
        ({"first_mes": "hello"}, BrokenCard, "`name` is missing"),
    ],
)
def test_s9_an_invalid_card_is_refused_with_the_reason(
    document: dict[str, Any], error: type[CardError], reason: str
) -> None:
    with pytest.raises(error, match=reason) as refused:
        Card.read(document)
    assert refused.value.fix


@pytest.mark.parametrize(
    ("version", "number", "newer"),
    [("3.0", 3.0, False), ("3.1", 3.1, True), (3.5, 3.5, True), ("99", 99.0, True), ("2.0", 2.0, False)],
)
def test_s9_spec_version_is_a_float_and_newer_is_never_rejected(version: object, number: float, newer: bool) -> None:
    card = Card.read({**V3, "spec_version": version})
    assert card.spec_version == number
    assert card.is_newer is newer


@pytest.mark.parametrize("version", [None, "", "three", [], {}, 10**400])
def test_s9_an_unreadable_version_is_that_of_the_spec(version: object) -> None:
    assert Card.read({**V3, "spec_version": version}).spec_version == 3.0


def test_s9_a_newer_spec_is_read_as_far_as_known() -> None:
    card = Card.read({**V3, "spec": "chara_card_v4", "spec_version": "4.2"})
    assert card.generation == 4
    assert card.is_newer
    assert card.name == "Ada"


def test_s9_notes_tags_creator_and_version_stay_out_of_prompts() -> None:
    for document in (V2, V3):
        parts = Card.read(document).prompt_parts()
        assert "SECRET" not in parts.model_dump_json()
        assert parts.system_prompt == "Be brief."
        assert parts.post_history_instructions == "Stay in character."
        assert parts.greetings == ["Come in!", "Who is there?"]


def test_s9_char_is_the_nickname_else_the_name() -> None:
    assert Card.read(V3).char == "Lamp"
    assert Card.read(V2).char == "Ada"
    assert v2(nickname=" ").char == "Ada"


def test_s9_common_mistakes_of_cards_are_accepted() -> None:
    card = v2(
        tags="lonely, coast",
        alternate_greetings=None,
        character_version=1.5,
        creator=None,
        extensions=[],
        character_book=[],
        assets="none",
        description="half \ud83d",
    )
    assert card.data.tags == ["lonely", "coast"]
    assert card.data.alternate_greetings == []
    assert card.data.character_version == "1.5"
    assert card.extensions == {}
    assert card.lorebook is None
    assert card.data.description.encode() == b"half ?"
    assert card.document["data"]["description"] == "half \ud83d"


def test_s9_assets_are_found_under_each_spelling() -> None:
    uris = [f"{scheme}assets/happy.bin" for scheme in ("embeded://", "embedded://", "__asset:", "EMBEDED://")]
    document = {**V3, "data": {**V3["data"], "assets": [{"type": "icon", "uri": uri} for uri in uris]}}
    card = Card.read(document, FILES)
    assert [card.asset_bytes(asset) for asset in card.assets] == [FILES["assets/happy.bin"]] * 4


def test_s9_an_asset_can_be_a_data_address_and_is_never_downloaded() -> None:
    uris = ["data:image/png;base64,AAEC", "data:text/plain,a%20b", "https://example.com/a.png", "file:///etc/passwd"]
    document = {**V3, "data": {**V3["data"], "assets": [{"type": "x", "uri": uri} for uri in uris]}}
    card = Card.read(document)
    assert [card.asset_bytes(asset) for asset in card.assets] == [b"\0\1\2", b"a b", None, None]


def test_s9_the_default_icon_is_the_picture() -> None:
    assert Card.read(V2, picture=tiny_png()).main_icon == tiny_png()
    assert Card.read(V2).main_icon is None


def test_changing_fields_keeps_all_others_and_updates_the_flat_copy() -> None:
    document = {**V2, "name": "Ada", "description": "flat copy"}
    card = Card.read(document).with_fields(name="Eda", description="new")
    assert card.document["name"] == card.document["data"]["name"] == "Eda"
    assert card.document["unknown_at_top"] == "kept"
    assert card.fields["unknown_in_data"] == {"kept": True}
    assert document["data"]["name"] == "Ada"


def test_cards_are_equal_only_when_their_json_is() -> None:
    assert v2(x=1) == v2(x=1)
    assert v2(x=1) != v2(x=True)
    assert v2(x=1) != v2(x=1.0)
    assert Card.read(V2, FILES) != Card.read(V2)
