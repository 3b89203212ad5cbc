"""A new memory for each test, with a manual clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.base.clock import ManualClock
from coterie.memory import Memory


@pytest.fixture
def memory(tmp_path: Path, clock: ManualClock) -> Iterator[Memory]:
    with Memory(tmp_path / "memory.db", clock=clock) as opened:
        yield opened
        assert opened.verify() == []
