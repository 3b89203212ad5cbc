"""Fixtures for the tests of all packages."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from bench.lib.sample_events import sample_projections
from coterie.base.clock import ManualClock
from coterie.base.redaction import redact
from coterie.eventstore import Store

pytest.register_assert_rewrite("tests.contracts")
# A shell that runs the tests in the background makes them ignore SIGINT, which some of them send.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "coterie", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("coterie")


_LONGEST = ("tests/real/", "tests/e2e/", "tests/test_walkthroughs.py", "tests/test_secrets_nowhere.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest files first, so that no worker starts one last."""
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


def pytest_xdist_auto_num_workers() -> int:
    """One worker more than cores: tests spend much time waiting for servers, browsers and processes."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(autouse=True)
def registered_secrets() -> Iterator[None]:
    """A secret that a test registers is not redacted in the texts of the next one."""
    before = dict(vars(redact), _secrets=set(vars(redact)["_secrets"]))
    yield
    vars(redact).update(before)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[Store]:
    """An empty store with the sample projections and a manual clock."""
    opened = Store.open(tmp_path / "coterie.db", projections=sample_projections(), clock=clock)
    yield opened
    opened.close()
