"""C14: after twenty sessions personas have changed within bounds and are distinguishable."""

from __future__ import annotations

import pytest

from bench.persona_drift import DriftRun, recognition_rate, run_sessions
from coterie.modes.crowd.drift import MAX_TOTAL_DRIFT


@pytest.fixture(scope="module")
def drift_run() -> DriftRun:
    return run_sessions("kitchen-radio", 20, 2)


def test_c14_twenty_sessions_change_personas_within_bounds(drift_run: DriftRun) -> None:
    assert drift_run.changed > 0.02
    assert drift_run.largest_step <= 0.05 + 1e-9
    assert drift_run.farthest <= MAX_TOTAL_DRIFT + 1e-9


def test_c14_personas_stay_distinguishable(drift_run: DriftRun) -> None:
    share, chance = recognition_rate(drift_run)
    assert share >= chance + 0.5
