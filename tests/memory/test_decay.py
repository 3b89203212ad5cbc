"""D7 and M5: decay of importance, and archiving."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.memory import Memory
from coterie.memory.ranking import DAY, importance


def importance_of(weight: float, age_days: float, idle_days: float, identity: bool = False) -> float:
    now = 10_000 * DAY
    return float(
        importance(
            np.array([weight]),
            np.array([now - int(age_days * DAY)]),
            np.array([now - int(idle_days * DAY)]),
            now,
            np.array([identity]),
        )[0]
    )


def test_d7_importance_by_age_and_use() -> None:
    assert round(importance_of(0.6, 4, 4), 6) == round(0.6 * 0.8 * 1.1, 6)
    assert round(importance_of(0.6, 20, 20), 6) == round(0.6 * 0.5, 6)
    assert round(importance_of(0.6, 400, 31), 6) == round(0.6 * 0.5 * 0.9, 6)
    assert round(importance_of(0.6, 400, 3), 6) == round(0.6 * 0.5 * 1.1, 6)
    assert importance_of(1.0, 4_000, 4_000, identity=True) == 1.0


@given(st.floats(0, 1), st.floats(0, 500), st.floats(0, 500), st.floats(0, 100))
def test_d7_law_importance_never_grows_with_age(weight: float, age: float, idle: float, more: float) -> None:
    idle = min(idle, age)
    assert importance_of(weight, age + more, idle + more) <= importance_of(weight, age, idle) + 1e-9


def test_m5_old_unimportant_memories_are_archived_but_searchable(memory: Memory, clock: ManualClock) -> None:
    uncertain = memory.add("the boat may have a new rope", confidence=0.7)
    certain = memory.add("the boat has a new mast", type="fact")
    clock.advance(29 * 86_400)
    assert {each.id for each in memory.recall("the boat")} == {uncertain, certain}
    clock.advance(3 * 86_400)
    assert {each.id for each in memory.recall("the boat")} == {certain}
    assert {each.id for each in memory.recall("the boat", archived=True)} == {uncertain, certain}


def test_d7_use_brings_a_memory_out_of_the_archive(memory: Memory, clock: ManualClock) -> None:
    uncertain = memory.add("the boat may have a new rope", confidence=0.65)
    clock.advance(60 * 86_400)
    assert memory.recall("the boat") == []
    memory.mark_used([uncertain])
    assert [each.id for each in memory.recall("the boat")] == [uncertain]


def test_d7_recall_changes_no_state(memory: Memory, clock: ManualClock) -> None:
    memory.add("the boat has a new mast", type="fact")
    clock.advance(40 * 86_400)
    before = memory.store.hashes()
    scores = {each.score for _ in range(24) for each in memory.recall("the boat", mode="important")}
    assert len(scores) == 1
    assert memory.store.hashes() == before
