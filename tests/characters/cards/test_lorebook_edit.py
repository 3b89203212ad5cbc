"""S9: an edited lorebook keeps everything that was not edited, in the format that it was read in."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.characters.cards import Lorebook
from coterie.characters.cards.lorebook_edit import (
    BookFields,
    EntryFields,
    as_world_info,
    book_fields,
    empty_book,
    entry_fields,
    with_book_fields,
    with_entry_fields,
)
from coterie.characters.cards.parsing import Document

WORLD_INFO: Document = {
    "entries": {
        "3": {"uid": 3, "key": ["lamp"], "keysecondary": [], "content": "x", "order": 5, "disable": False, "own": [1]},
        "7": {"uid": 7, "key": ["sea"], "content": "y", "position": 4, "depth": 2, "role": 1, "selective": True},
    },
    "originalData": {"kept": True},
}
CARD_BOOK: Document = {
    "name": "Coast",
    "entries": [
        {"keys": ["lamp"], "content": "@@depth 1\nx", "enabled": True, "insertion_order": 5, "extensions": {"own": 1}},
        {"id": 9, "keys": ["sea"], "content": "y", "enabled": True, "insertion_order": 1, "priority": 3},
    ],
    "extensions": {"other": {}},
}
CHANGED = EntryFields(
    name="Lamp",
    keys=["lamp", "/l.mp/i"],
    secondary_keys=["oil", "wick"],
    logic="all",
    content="It burns.",
    enabled=False,
    constant=True,
    position="at_depth",
    depth=2,
    role="assistant",
    insertion_order=7,
    probability=40,
    sticky=3,
    cooldown=5,
    delay=2,
    groups=["light", "night"],
    group_override=True,
    group_weight=50,
    group_scoring=True,
    scan_depth=9,
    case_sensitive=True,
    whole_words=True,
    may_recurse=False,
    by_recursion=False,
    recursion_level=2,
)


@pytest.mark.parametrize("document", [WORLD_INFO, CARD_BOOK])
def test_s9_every_field_is_written_and_read_again(document: Document) -> None:
    book = Lorebook(document=deepcopy(document))
    for entry in book.entries:
        edited = with_entry_fields(book, entry.key, CHANGED)
        assert entry_fields(edited, entry.key) == CHANGED
        assert [one for one in edited.entries if one.key != entry.key] == [
            one for one in book.entries if one.key != entry.key
        ]
        back = with_entry_fields(edited, entry.key, entry_fields(book, entry.key))
        assert entry_fields(back, entry.key) == entry_fields(book, entry.key)
    assert book.document == document


@pytest.mark.parametrize("document", [WORLD_INFO, CARD_BOOK])
def test_s9_fields_that_did_not_change_are_not_written(document: Document) -> None:
    book = Lorebook(document=document)
    for entry in book.entries:
        fields = entry_fields(book, entry.key)
        assert with_entry_fields(book, entry.key, fields) is book
        longer = with_entry_fields(book, entry.key, fields.model_copy(update={"content": f"{fields.content} z"}))
        raw = book.raw_entry(entry.key)
        assert longer.raw_entry(entry.key) == {**raw, "content": f"{raw['content']} z"}


@given(st.sampled_from(list(EntryFields.model_fields)), st.booleans())
def test_law_a_change_of_one_field_changes_no_other(name: str, world_info: bool) -> None:
    book = Lorebook(document=WORLD_INFO if world_info else CARD_BOOK)
    key = book.entries[1].key
    before = entry_fields(book, key)
    changed = before.model_copy(update={name: getattr(CHANGED, name)})
    after = entry_fields(with_entry_fields(book, key, changed), key)
    expected = changed if changed.position == "at_depth" else changed.model_copy(update={"depth": after.depth})
    assert after == expected


@pytest.mark.parametrize("document", [empty_book("New"), {"entries": {}}, WORLD_INFO, CARD_BOOK])
def test_s9_entries_are_added_and_removed(document: dict[str, Any]) -> None:
    book = Lorebook(document=document)
    key = book.new_key()
    added = with_entry_fields(book, key, CHANGED)
    assert entry_fields(added, key) == CHANGED
    assert len(added.entries) == len(book.entries) + 1
    assert added.with_entry(key, None).document == document


def test_s9_a_book_becomes_world_info_that_reads_the_same() -> None:
    book = with_entry_fields(Lorebook(document=empty_book("New")), "0", CHANGED)
    converted = Lorebook.read(as_world_info(book))
    assert entry_fields(converted, "0") == CHANGED
    assert as_world_info(Lorebook(document=WORLD_INFO)) == WORLD_INFO


def test_s9_the_settings_of_a_book_are_edited() -> None:
    book = Lorebook(document=CARD_BOOK)
    fields = BookFields(name="Shore", scan_depth=2, token_budget=100, recursive_scanning=True)
    edited = with_book_fields(book, fields)
    assert book_fields(edited) == fields
    assert edited.document["extensions"] == {"other": {}}
    assert with_book_fields(edited, book_fields(book)).scan_depth is None
