"""Static vectors: read from a wheel, exact on a grid, the same however they are computed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.memory.index.embedders import DIM, GRID, quantize, static_embedder


def test_pieces_are_those_of_the_models_own_tokenizer() -> None:
    # What the reference tokenizer gives for the same words: an accent, two ideographs, a word split in two.
    expected = [306, 508, 260, 4658, 22226, 263, 371, 278, 29871, 30325, 30346, 7953, 2594]
    assert static_embedder().wordpieces.encode("I can't believe Müller ate the 日本 foo_bar") == expected


def test_near_meanings_are_nearer_than_far_ones() -> None:
    dog, puppy, tax = static_embedder().embed(
        ["the dog barked at night", "a puppy was barking", "income tax is due in May"]
    )
    assert dog @ puppy > 2 * abs(dog @ tax)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=12))
def test_a_text_has_one_vector_alone_or_in_a_batch(texts: list[str]) -> None:
    offline = static_embedder()
    together = offline.embed(texts)
    assert together.shape == (len(texts), DIM)
    assert np.array_equal(together, np.concatenate([offline.embed([text]) for text in texts]))


@given(st.permutations(range(DIM)))
def test_products_do_not_depend_on_the_order_of_summation(order: list[int]) -> None:
    one, other = static_embedder().embed(["she sold the boat", "the boat was sold by her"])
    assert float(one @ other) == float(one[order] @ other[order])
    assert np.array_equal(one, np.rint(one))
    assert np.array_equal(one.astype(np.float16).astype(np.float32), one)


def test_rare_pieces_weigh_more_than_common_ones() -> None:
    offline = static_embedder()
    common, rare = offline.tokens("the")[0], offline.tokens("orchestra")[0]
    assert offline.rarity[common] < offline.rarity[rare]
    assert offline.rarity[offline.tokens("The")[0]] == offline.rarity[common]


def test_nothing_to_say_is_a_vector_of_nothing() -> None:
    assert not static_embedder().embed(["", "…!?", "\0"]).any()
    assert not quantize(np.zeros((2, 4))).any()
    assert np.abs(quantize(np.array([[3.0, 4.0]]))).max() <= GRID
