"""Expressions chosen by mood, those of cards included, and the gallery of a character."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.characters.cards.card import Card
from coterie.characters.cards.import_export import export_card
from coterie.characters.errors import BadPicture
from coterie.characters.personas import PictureFiles
from coterie.characters.pictures import (
    CharacterPictures,
    CharacterPicturesProjection,
    choose_expression,
)
from coterie.characters.workspace import Workspaces
from coterie.eventstore import Store

HAPPY, SAD = (b"\x89PNG\r\n\x1a\n" + name for name in (b"happy", b"sad"))
SET = ("neutral", "joy", "sadness", "anger", "embarrassment", "surprise")


@pytest.mark.parametrize(
    ("mood", "expression"),
    [
        ("", "neutral"),
        ("thinking about boats", "neutral"),
        ("joy", "joy"),
        ("quietly happy", "joy"),
        ("sad, then angry", "sadness"),
        ("furious at Ana", "anger"),
        ("not angry, just startled", "surprise"),
        ("blushing", "embarrassment"),
        ("Heiter", "neutral"),
    ],
)
def test_an_expression_is_chosen_by_the_words_of_a_mood(mood: str, expression: str) -> None:
    assert choose_expression(mood, SET) == expression


def test_a_set_with_names_of_its_own_is_used_by_those_names() -> None:
    assert choose_expression("rather grumpy today", ["grumpy", "sleepy"]) == "grumpy"
    assert choose_expression("sleepyhead", ["grumpy", "sleepy"]) == "sleepy"
    assert choose_expression("joyful", ["joy-2", "neutral-1"]) == "joy-2"
    assert choose_expression("bored", ["grumpy", "sleepy"]) == ""


@pytest.fixture
def pictures(tmp_path: Path) -> Iterator[CharacterPictures]:
    store = Store.open(tmp_path / "c.db", projections=[CharacterPicturesProjection()])
    yield CharacterPictures(store, PictureFiles(tmp_path / "pictures"), Workspaces(tmp_path / "workspaces"))
    store.close()


async def test_expressions_are_saved_replaced_and_removed(pictures: CharacterPictures) -> None:
    files = pictures._files
    await pictures.save("mara", "expression", " Joy ", files.save(SAD))
    await pictures.save("mara", "expression", "joy", files.save(HAPPY))
    await pictures.save("mara", "gallery", "At sea", files.save(SAD))
    assert [(one.name, one.picture) for one in pictures.all("mara", "expression")] == [("joy", files.save(HAPPY))]
    assert [one.name for one in pictures.all("mara", "gallery")] == ["at sea"]
    assert pictures.all("theo", "gallery") == []
    shown = pictures.for_mood("mara", "happy")
    assert shown is not None
    assert shown.name == "joy"
    assert pictures.for_mood("mara", "sad") is None
    await pictures.remove("mara", "expression", "joy")
    assert pictures.all("mara", "expression") == []
    with pytest.raises(BadPicture):
        await pictures.save("mara", "expression", "joy", "0" * 32)


async def test_s9_the_expressions_of_a_charx_are_used(pictures: CharacterPictures, tmp_path: Path) -> None:
    assets = [
        {"type": "emotion", "uri": "embeded://assets/emotion/image/happy.png", "name": "happy", "ext": "png"},
        {"type": "emotion", "uri": "embeded://assets/emotion/image/sad.png", "name": "sad", "ext": "png"},
        {"type": "icon", "uri": "ccdefault:", "name": "main", "ext": "png"},
    ]
    document = {"spec": "chara_card_v3", "spec_version": "3.0", "data": {"name": "Mara", "assets": assets}}
    files = {"assets/emotion/image/happy.png": HAPPY, "assets/emotion/image/sad.png": SAD}
    data = export_card(Card.read(document, files), "charx").data
    folder = tmp_path / "workspaces" / "mara"
    folder.mkdir(parents=True)
    (folder / "card.charx").write_bytes(data)
    assert [one.name for one in pictures.all("mara", "expression")] == ["happy", "sad"]
    shown = pictures.for_mood("mara", "happy")
    assert shown is not None
    found = pictures._files.read(shown.picture)
    assert found is not None
    assert found.data == HAPPY
    await pictures.remove("mara", "expression", "sad")
    assert [one.name for one in pictures.all("mara", "expression")] == ["happy"], "it stays hidden"
