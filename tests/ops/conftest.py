"""A data folder with a store of sample events in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.lib.sample_events import sample_event
from coterie.base.paths import Paths
from coterie.eventstore import AnyEvent, Store

AppendSample = Callable[[int], list[AnyEvent]]


@pytest.fixture
def home(tmp_path: Path) -> Paths:
    """The folder whose database the `store` fixture opens."""
    found = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    found.prepare()
    return found


@pytest.fixture
def append_sample(store: Store) -> AppendSample:
    """Appends sample events."""
    chance = random.Random(1)
    number = iter(range(1_000_000))

    def append(events: int) -> list[AnyEvent]:
        return store.append_blocking([sample_event(chance, "room:a", next(number)) for _ in range(events)])

    return append
