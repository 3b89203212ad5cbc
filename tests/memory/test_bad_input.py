"""Unusual and invalid input from people, models and embedders: clear errors and an intact index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.memory import Memory
from coterie.memory.errors import BadMemory, EmbedderFailed

UNUSUAL = [
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


@pytest.mark.parametrize("text", UNUSUAL)
def test_unusual_texts_are_stored_and_found(memory: Memory, text: str) -> None:
    memory.add("something else about walnuts and cake")
    stored = memory.add(text)
    assert memory.recall(text, k=1)[0].id == stored
    assert memory.add(text) == stored
    assert memory.verify() == []


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\0\0"])
def test_an_empty_memory_is_refused(memory: Memory, text: str) -> None:
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


@pytest.mark.parametrize("question", [*UNUSUAL, "", " ", "?", '"', "AND", "NOT", "a OR", "NEAR(", "*", "x" * 1_000_000])
def test_any_query_text_is_accepted(memory: Memory, question: str) -> None:
    memory.add("the boat is in the harbour")
    assert len(memory.recall(question)) <= 1


@settings(max_examples=40)
@given(st.lists(st.text(max_size=40), max_size=6), st.text(max_size=40))
def test_law_no_text_damages_the_index(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], question: str
) -> None:
    with Memory(tmp_path_factory.mktemp("law") / "m.db") as memory:
        for text in texts:
            try:
                memory.add(text, speaker=text[:3] or None)
            except BadMemory:
                assert not text.replace("\0", "").strip()
        memory.recall(question)
        assert memory.verify() == []


class FaultyEmbedder:
    """An embedder that fails in the chosen way."""

    name = "faulty"

    def __init__(self, dim: int = 8) -> None:
        self.dim = dim
        self.fault = ""

    def embed(self, texts: Sequence[str]) -> Any:
        if self.fault == "fails":
            raise ConnectionError("connection refused")
        if self.fault == "few":
            return np.ones((len(texts) - 1, self.dim))
        if self.fault == "nan":
            return np.full((len(texts), self.dim), np.nan)
        return np.array([[float(sum(map(ord, text)) % (7 + at)) + 1 for at in range(self.dim)] for text in texts])


@pytest.mark.parametrize("fault", ["fails", "few", "nan"])
def test_a_failing_embedder_stops_neither_storing_nor_recall(memory: Memory, fault: str) -> None:
    faulty = FaultyEmbedder()
    memory.use_embedder(faulty)
    memory.embedding_worker.wait()
    faulty.fault = fault
    stored = memory.add("the boat is in the harbour")
    with pytest.raises(EmbedderFailed):
        memory.vectors.embed_pending()
    assert [each.id for each in memory.recall("boat")] == [stored]
    assert memory.verify() == []
    faulty.fault = ""
    assert memory.vectors.embed_pending() == 1
    assert memory.recall("the boat in the harbour again")[0].parts["embedder"] is not None


def test_an_embedder_that_changes_its_dimension_is_refused(memory: Memory) -> None:
    faulty = FaultyEmbedder(8)
    memory.use_embedder(faulty)
    first = memory.add("the boat is in the harbour")
    memory.vectors.embed_pending()
    faulty.dim = 12
    second = memory.add("the cello is out of tune")
    with pytest.raises(EmbedderFailed, match="length 12, but earlier ones have 8"):
        memory.vectors.embed_pending()
    assert {each.id for each in memory.recall("boat or cello?")} == {first, second}
    assert memory.verify() == []
    renamed = FaultyEmbedder(12)
    renamed.name = "faulty-12"
    memory.use_embedder(renamed)
    memory.embedding_worker.wait()
    assert memory.store.query("SELECT DISTINCT model, length(vector) FROM memory_vector") == [("faulty-12", 24)]
    assert memory.verify() == []


def test_failures_of_background_embedding_are_reported(memory: Memory) -> None:
    faulty = FaultyEmbedder()
    faulty.fault = "fails"
    memory.add("the boat is in the harbour")
    memory.use_embedder(faulty)
    memory.embedding_worker.wait()
    status = memory.embedding_worker.status()
    assert status.error is not None and "connection refused" in status.error
    assert (status.done, status.total, status.running) == (0, 1, False)


def test_any_failure_of_background_embedding_is_reported(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("fault")

    monkeypatch.setattr(type(memory.vectors), "embed_pending", fails)
    memory.add("the boat is in the harbour")
    memory.use_embedder(FaultyEmbedder())
    memory.embedding_worker.wait()
    assert "RuntimeError: fault" in str(memory.embedding_worker.status().error)
