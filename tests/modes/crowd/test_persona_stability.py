"""C14: after twenty sessions of people pulling at them, personas have changed, and are still themselves."""

from __future__ import annotations

import pytest

from bench.persona_drift import Life, live, recognised
from coterie.modes.crowd.drift import MAX_TOTAL_DRIFT


@pytest.fixture(scope="module")
def life() -> Life:
    return live("kitchen-radio", 20, 2)


def test_c14_twenty_sessions_change_personas_within_bounds(life: Life) -> None:
    assert life.changed > 0.02
    assert life.largest_step <= 0.05 + 1e-9
    assert life.farthest <= MAX_TOTAL_DRIFT + 1e-9


def test_c14_personas_stay_distinguishable(life: Life) -> None:
    share, chance = recognised(life)
    assert share >= chance + 0.5
