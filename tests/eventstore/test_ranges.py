from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coterie.eventstore.ranges import Ranges

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def as_set(found: list[tuple[int, int]]) -> set[int]:
    return {number for low, high in found for number in range(low, high + 1)}


@given(pairs, pairs, st.integers(-2, 65))
def test_ranges_are_sets(a: list[tuple[int, int]], b: list[tuple[int, int]], cut: int) -> None:
    one, two = Ranges(a), Ranges(b)
    plain_one, plain_two = as_set(a), as_set(b)
    assert list(one) == sorted(plain_one)
    assert len(one) == len(plain_one)
    assert bool(one) == bool(plain_one)
    assert set(one | two) == plain_one | plain_two
    assert set(one - two) == plain_one - plain_two
    assert set(one.up_to(cut)) == {n for n in plain_one if n <= cut}
    assert set(one.after(cut)) == {n for n in plain_one if n > cut}
    assert (cut in one) == (cut in plain_one)
    assert (one == two) == (plain_one == plain_two)


@given(pairs)
def test_intervals_are_disjoint_and_not_adjacent(a: list[tuple[int, int]]) -> None:
    found = Ranges(a).pairs
    assert all(low <= high for low, high in found)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(found))
    assert hash(Ranges(found)) == hash(Ranges(a))
