from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coterie.eventstore.sqlite.lineage import Ranges

pair_lists = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def as_set(pairs: list[tuple[int, int]]) -> set[int]:
    return {number for low, high in pairs for number in range(low, high + 1)}


@given(pair_lists, pair_lists, st.integers(-2, 65))
def test_ranges_are_sets(a: list[tuple[int, int]], b: list[tuple[int, int]], cut: int) -> None:
    first, second = Ranges(a), Ranges(b)
    first_set, second_set = as_set(a), as_set(b)
    assert list(first) == sorted(first_set)
    assert len(first) == len(first_set)
    assert bool(first) == bool(first_set)
    assert set(first | second) == first_set | second_set
    assert set(first - second) == first_set - second_set
    assert set(first.up_to(cut)) == {n for n in first_set if n <= cut}
    assert set(first.after(cut)) == {n for n in first_set if n > cut}
    assert (cut in first) == (cut in first_set)
    assert (first == second) == (first_set == second_set)


@given(pair_lists)
def test_intervals_are_disjoint_and_not_adjacent(a: list[tuple[int, int]]) -> None:
    pairs = Ranges(a).pairs
    assert all(low <= high for low, high in pairs)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(pairs))
    assert hash(Ranges(pairs)) == hash(Ranges(a))
