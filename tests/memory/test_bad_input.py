"""What people, models and embedders hand in that they should not: clear answers, and an index that stays whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.memory import Memory
from coterie.memory.errors import BadMemory, EmbedderFailed

ODD = [
    "emoji 🦦🛶 and 👩‍👩‍👧 family",
    "שלום עולם, קנינו סירה חדשה בנמל",
    "مرحبا بالعالم في الميناء",
    "a NUL \0 in the middle of the harbour",
    "lone surrogate \ud800 here",
    'NEAR(boat harbour) AND NOT "quoted" OR * ^ col:umn - + { }',
    "'; DROP TABLE memory; --",
    "\u202eright to left override\u202c",
    "日本語の港と船の話",
    "zero\u200bwidth\ufeff",
]


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_stored_and_found_by_themselves(memory: Memory, text: str) -> None:
    memory.add("something else about walnuts and cake")
    stored = memory.add(text)
    assert memory.recall(text, k=1)[0].id == stored
    assert memory.add(text) == stored
    assert memory.verify() == []


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\0\0"])
def test_an_empty_memory_is_refused_and_says_so(memory: Memory, text: str) -> None:
    with pytest.raises(BadMemory, match="empty"):
        memory.add(text)
    assert memory.count() == 0


def test_a_megabyte_is_stored_and_found(memory: Memory) -> None:
    text = "the harbour log of a very long voyage " * 27_000
    assert len(text) > 1_000_000
    stored = memory.add(text)
    other = memory.add("the cello was out of tune")
    assert memory.recall("harbour voyage", k=1)[0].id == stored
    assert memory.recall("cello tune", k=1)[0].id == other
    assert memory.recall(text, k=1)[0].id == stored


@pytest.mark.parametrize("question", [*ODD, "", " ", "?", '"', "AND", "NOT", "a OR", "NEAR(", "*", "x" * 1_000_000])
def test_any_question_gets_an_answer(memory: Memory, question: str) -> None:
    memory.add("the boat is in the harbour")
    assert len(memory.recall(question)) <= 1


@settings(max_examples=40)
@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=40))
def test_law_no_text_harms_the_index(tmp_path_factory: pytest.TempPathFactory, texts: list[str], question: str) -> None:
    with Memory(tmp_path_factory.mktemp("law") / "m.db") as memory:
        for text in texts:
            try:
                memory.add(text, speaker=text[:3] or None)
            except BadMemory:
                assert not text.replace("\0", "").strip()
        memory.recall(question)
        assert memory.verify() == []


class Moody:
    """An embedder that does whatever its mood says."""

    name = "moody"

    def __init__(self, dim: int = 8) -> None:
        self.dim = dim
        self.mood = "well"

    def embed(self, texts: Sequence[str]) -> Any:
        if self.mood == "fails":
            raise ConnectionError("no line")
        if self.mood == "few":
            return np.ones((len(texts) - 1, self.dim))
        if self.mood == "nan":
            return np.full((len(texts), self.dim), np.nan)
        return np.array([[float(sum(map(ord, text)) % (7 + at)) + 1 for at in range(self.dim)] for text in texts])


@pytest.mark.parametrize("mood", ["fails", "few", "nan"])
def test_an_embedder_that_fails_stops_neither_storing_nor_recall(memory: Memory, mood: str) -> None:
    moody = Moody()
    memory.use_embedder(moody)
    memory.embedding_worker.wait()
    moody.mood = mood
    stored = memory.add("the boat is in the harbour")
    with pytest.raises(EmbedderFailed):
        memory.vectors.embed_pending()
    assert [each.id for each in memory.recall("boat")] == [stored]
    assert memory.verify() == []
    moody.mood = "well"
    assert memory.vectors.embed_pending() == 1
    assert memory.recall("the boat in the harbour again")[0].parts["embedder"] is not None


def test_an_embedder_that_changes_its_dimension_midway_is_refused_and_named(memory: Memory) -> None:
    moody = Moody(8)
    memory.use_embedder(moody)
    first = memory.add("the boat is in the harbour")
    memory.vectors.embed_pending()
    moody.dim = 12
    second = memory.add("the cello is out of tune")
    with pytest.raises(EmbedderFailed, match="length 12, but earlier ones have 8"):
        memory.vectors.embed_pending()
    assert {each.id for each in memory.recall("boat or cello?")} == {first, second}
    assert memory.verify() == []
    renamed = Moody(12)
    renamed.name = "moody-12"
    memory.use_embedder(renamed)
    memory.embedding_worker.wait()
    assert memory.store.query("SELECT DISTINCT model, length(vector) FROM memory_vector") == [("moody-12", 24)]
    assert memory.verify() == []


def test_failures_of_the_background_are_told(memory: Memory) -> None:
    moody = Moody()
    moody.mood = "fails"
    memory.add("the boat is in the harbour")
    memory.use_embedder(moody)
    memory.embedding_worker.wait()
    status = memory.embedding_worker.status()
    assert status.error is not None and "no line" in status.error
    assert (status.done, status.total, status.running) == (0, 1, False)
