"""Embedders: the contract, and the exactness of the static vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.index.embedders import DIM, GRID, StaticEmbedder, quantize, static_embedder
from tests.contracts.embedder_contract import EmbedderContract


class TestStaticVectors(EmbedderContract):
    @pytest.fixture
    def embedder(self) -> StaticEmbedder:
        return static_embedder()


def test_pieces_match_the_reference_tokenizer() -> None:
    # The output of the reference tokenizer: an accent, two ideographs, a word split in two.
    expected = [306, 508, 260, 4658, 22226, 263, 371, 278, 29871, 30325, 30346, 7953, 2594]
    assert static_embedder().wordpieces.encode("I can't believe Müller ate the 日本 foo_bar") == expected


def test_similar_texts_have_similar_vectors() -> None:
    dog, puppy, tax = static_embedder().embed(
        ["the dog barked at night", "a puppy was barking", "income tax is due in May"]
    )
    assert dog @ puppy > 2 * abs(dog @ tax)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=12))
def test_a_text_has_the_same_vector_alone_and_in_a_batch(texts: list[str]) -> None:
    embedder = static_embedder()
    together = embedder.embed(texts)
    assert together.shape == (len(texts), DIM)
    assert np.array_equal(together, np.concatenate([embedder.embed([text]) for text in texts]))


@given(st.permutations(range(DIM)))
def test_products_do_not_depend_on_the_order_of_summation(order: list[int]) -> None:
    one, other = static_embedder().embed(["she sold the boat", "the boat was sold by her"])
    assert float(one @ other) == float(one[order] @ other[order])
    assert np.array_equal(one, np.rint(one))
    assert np.array_equal(one.astype(np.float16).astype(np.float32), one)


def test_rare_pieces_weigh_more_than_common_ones() -> None:
    embedder = static_embedder()
    common, rare = embedder.tokens("the")[0], embedder.tokens("orchestra")[0]
    assert embedder.rarity[common] < embedder.rarity[rare]
    assert embedder.rarity[embedder.tokens("The")[0]] == embedder.rarity[common]


def test_a_text_without_words_has_a_zero_vector() -> None:
    assert not static_embedder().embed(["", "…!?", "\0"]).any()
    assert not quantize(np.zeros((2, 4))).any()
    assert np.abs(quantize(np.array([[3.0, 4.0]]))).max() <= GRID
