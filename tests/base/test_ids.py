from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from coterie.base.ids import id_time_ms, new_id


def test_ids_have_26_characters_without_ambiguous_ones() -> None:
    identifier = new_id()
    assert len(identifier) == 26
    assert not set(identifier) & set("ILOU")


def test_ids_sort_by_creation_time() -> None:
    ids = [new_id() for _ in range(2_000)]
    assert ids == sorted(set(ids))


def test_ids_stay_in_order_under_threads() -> None:
    def make(_: int) -> list[str]:
        return [new_id() for _ in range(500)]

    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(make, range(8)))
    for batch in batches:
        assert batch == sorted(batch)
    assert len({identifier for batch in batches for identifier in batch}) == 4_000


def test_ids_stay_in_order_when_the_clock_is_set_back() -> None:
    late = time.time_ns() // 1_000_000 + 1_000
    before = new_id(late)
    after = new_id(late - 60_000)
    assert after > before
    assert id_time_ms(after) >= late


def test_the_time_of_an_id_can_be_read() -> None:
    later = time.time_ns() // 1_000_000 + 3_600_000  # beyond what any other test of this process made
    assert id_time_ms(new_id(later)) == later


def test_an_invalid_id_is_refused() -> None:
    with pytest.raises(ValueError, match="substring"):
        id_time_ms("not an id!")
