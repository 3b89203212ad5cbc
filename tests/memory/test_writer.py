"""M4: writing, duplicates, secrets, forgetting, editing and pins."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.memory import Memory
from coterie.memory.dedupe import is_duplicate
from coterie.memory.errors import BadMemory, NoSuchMemory
from coterie.memory.writer import NewMemory, remove_contacts, remove_secrets


def test_m4_adding_recalled_context_again_makes_no_new_memory(memory: Memory) -> None:
    for number in range(20):
        memory.add(f"Ana told story number {number} about the harbour", speaker="Ana", sources=(f"t{number}",))
    before = memory.count()
    recalled = memory.recall("stories about the harbour", k=10)
    for found in recalled:
        assert memory.add(found.text, speaker="Ana", sources=("later",)) == found.id
        memory.add(f"[2026-01-01] {found.text}", speaker="Ana")
        memory.add(found.text, room="room:elsewhere")
    memory.add("\n".join(found.text for found in recalled))
    memory.add_many([NewMemory(found.text, "me", "room:main") for found in recalled])
    assert memory.count() == before


def test_m4_a_repeated_memory_adds_evidence(memory: Memory) -> None:
    first = memory.add("Ana is allergic to walnuts", sources=("t1",))
    assert memory.add("Ana is allergic to walnuts!", sources=("t9",)) == first
    assert memory.get(first).sources == ("t1", "t9")


def test_m4_a_private_memory_does_not_replace_a_public_one(memory: Memory) -> None:
    memory.add("Ben will get a watch", owner="mara", witnesses=("mara", "ana"), private=True)
    memory.add("Ben will get a watch", owner="mara", witnesses=("mara", "ana", "ben"))
    assert memory.count() == 2
    assert len(memory.recall("watch", owner="mara", room="room:main", present=("ben",))) == 1


def test_m4_a_forgotten_memory_is_not_stored_again(memory: Memory) -> None:
    first = memory.add("Ana is allergic to walnuts", sources=("t1",))
    memory.forget(first)
    assert memory.add("Ana is allergic to walnuts", sources=("t1",)) == ""
    assert memory.add("Walnuts: Ana is allergic to walnuts", sources=("t1",)) == ""
    assert memory.recall("walnuts") == []
    assert memory.count() == 0
    with pytest.raises(NoSuchMemory):
        memory.get(first)
    assert memory.add("Ana is allergic to cats", sources=("t2",)) != ""


def test_m4_secrets_are_not_stored(memory: Memory) -> None:
    key = "sk-" + "a1b2c3d4" * 4
    memory.add(f"the key is {key} and my password is hunter22, card 4111 1111 1111 1111")
    text = memory.recall("key password card")[0].text
    assert key not in text and "hunter22" not in text and "4111" not in text
    assert not any(key.encode() in file.read_bytes() for file in memory.store.path.parent.iterdir())


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Cleo's mail is cleo@example.org", "Cleo's mail is [email]"),
        ("call Cleo at +44 20 7946 0958 please", "call Cleo at [phone] please"),
        ("Cleo was born on 1990-05-08 and has 12 cats", "Cleo was born on 1990-05-08 and has 12 cats"),
    ],
)
def test_m4_contact_details_of_third_parties_are_removed(text: str, kept: str) -> None:
    assert remove_contacts(text) == kept


def test_m4_numbers_that_are_not_cards_are_kept() -> None:
    assert remove_secrets("order 1234 5678 9012 3456 arrived") == "order 1234 5678 9012 3456 arrived"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("Ana is allergic to walnuts", "Ana has a walnut allergy", True),
        ("Ben plays the cello in a quartet", "In a quartet, Ben plays cello", True),
        ("Ben likes tea", "Ben likes coffee", False),
        ("Ana has 2 cats", "Ana has 3 cats", False),
        ("Ana likes sailing", "Ana doesn't like sailing", False),
        ("I think Ana sold the boat", "I think Ben sold the boat", False),
        ("Ana works in Paris", "Ana works in Oslo", False),
    ],
)
def test_m4_duplicates_are_distinguished_from_similar_texts(one: str, other: str, expected: bool) -> None:
    assert is_duplicate(one, other) is expected
    assert is_duplicate(other, one) is expected


def test_m4_a_person_can_edit(memory: Memory) -> None:
    first = memory.add("Ana is allergic to walnut")
    memory.edit(first, text="Ana is allergic to hazelnuts", type="fact", significance=2)
    assert memory.recall("hazelnuts")[0].id == first
    assert memory.get(first).type == "fact"
    with pytest.raises(BadMemory):
        memory.edit(first, text=" ")
    with pytest.raises(NoSuchMemory):
        memory.edit("nothing", text="x")


def test_s14_at_most_eight_pins_and_manual_pins_are_kept(memory: Memory) -> None:
    ids = [memory.add(f"fact number {number} about the boat called {chr(97 + number) * 5}") for number in range(11)]
    memory.pin(ids[0], auto=True)
    for number in range(1, 8):
        memory.pin(ids[number])
    assert memory.pin(ids[8]) and not memory.get(ids[0]).pinned
    assert memory.pin(ids[9], auto=True) is False
    with pytest.raises(BadMemory, match="8 pinned"):
        memory.pin(ids[10])
    memory.unpin(ids[1])
    assert memory.pin(ids[10])
    assert sum(record.pinned for record in memory.browse()) == 8


def test_m1_invalid_fields_are_named_in_the_error(memory: Memory) -> None:
    with pytest.raises(BadMemory, match="significance"):
        memory.add("too important", significance=9)
    with pytest.raises(BadMemory, match="type"):
        memory.add("of no kind", type="rumour")
    assert memory.count() == 0


def test_many_identical_memories_read_what_is_known_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all evidence for each of them took quadratic time."""
    memory.add("Hello there.", sources=("first",))
    rows = 0
    query = memory.store.query

    def counting(sql: str, params: Any = ()) -> Any:
        nonlocal rows
        found = query(sql, params)
        rows += len(found)
        return found

    monkeypatch.setattr(memory.store, "query", counting)
    for batch in range(4):
        new = [NewMemory("Hello there.", "me", "room:main", sources=(f"{batch} {n}",)) for n in range(500)]
        writes = memory.add_many(new)
        assert {write.verdict for write in writes} == {"known"}
    assert rows < 4_000, "4 × all evidence so far"
    assert len(memory.get(writes[0].id).sources) == 2_001


def test_identical_memories_of_one_batch_are_one(memory: Memory) -> None:
    writes = memory.add_many([NewMemory("Hello there.", "me", "room:main", sources=(str(n),)) for n in range(300)])
    assert [write.verdict for write in writes] == ["added", *["known"] * 299]
    assert memory.count() == 1


def test_m4_each_of_many_forgotten_memories_is_recognised(memory: Memory) -> None:
    texts = [f"Ana told story number {number} about the harbour" for number in range(30)]
    ids = [memory.add(text, sources=(f"t{number}",)) for number, text in enumerate(texts)]
    for memory_id in ids[::2]:
        memory.forget(memory_id)
    again = memory.add_many([NewMemory(text, "me", "room:other") for text in texts])
    assert [write.verdict for write in again[::2]] == ["forgotten"] * 15
    by_id = memory.add_many([NewMemory("Something else entirely", "me", "room:main", id=ids[0])])
    assert by_id[0].verdict == "forgotten"
    others = memory.add_many([NewMemory(texts[0], "somebody else", "room:main")])
    assert others[0].verdict == "added"
