"""The contract of embedders. Subclass it and define the fixture `embedder`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie.memory import Memory
from coterie.memory.index.embedders import Embedder, embed_checked


class EmbedderContract:
    def test_it_implements_the_protocol_and_has_a_name(self, embedder: Embedder) -> None:
        assert isinstance(embedder, Embedder)
        assert embedder.name

    def test_it_returns_one_row_of_fixed_length_per_text(self, embedder: Embedder) -> None:
        three = embed_checked(embedder, ["a boat", "", "a cello 🎻"])
        assert three.shape[0] == 3
        assert embed_checked(embedder, ["alone"], three.shape[1]).shape == (1, three.shape[1])

    def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        assert len(embed_checked(embedder, [])) == 0

    def test_the_same_text_has_the_same_vector(self, embedder: Embedder) -> None:
        one, other = embed_checked(embedder, ["the boat", "the boat"])
        (again,) = embed_checked(embedder, ["the boat"])
        assert np.allclose(one, other) and np.allclose(one, again, atol=1e-5)

    def test_many_texts_are_embedded_in_order(self, embedder: Embedder) -> None:
        texts = [f"text number {number}" for number in range(150)]
        together = embed_checked(embedder, texts)
        assert np.allclose(
            together[[0, 77, 149]], embed_checked(embedder, [texts[0], texts[77], texts[149]]), atol=1e-5
        )

    def test_m3_changing_the_embedder_embeds_all_memories(self, embedder: Embedder, tmp_path: Path) -> None:
        with Memory(tmp_path / "m.db") as memory:
            for number in range(70):
                memory.add(f"note {number} about the harbour {chr(97 + number % 26) * 4}")
            memory.use_embedder(embedder)
            memory.embedding_worker.wait()
            status = memory.embedding_worker.status()
            assert (status.done, status.total, status.running, status.error) == (70, 70, False, None)
            found = memory.recall("note about the harbour")
            assert "embedder" in found[0].parts
            memory.add("one more about the lighthouse")
            assert memory.embedding_worker.status().done == 70
            memory.embedding_worker.start()
            memory.embedding_worker.wait()
            assert memory.embedding_worker.status().done == 71
            assert memory.verify() == []
