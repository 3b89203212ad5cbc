"""Every function that processes text of others takes linear time, also for texts made to be slow.

Each text runs in a worker process with a limit that is far above what linear processing takes, even on a busy machine,
and far below what quadratic processing takes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.lib.hostile_inputs import TEXT_CHARS, TEXTS
from coterie.base.errors import TooMuchWork
from coterie.base.offload import WorkerPool
from tests.text_entry_points import SLOW_ENTRY_POINTS, TEXT_ENTRY_POINTS

_GUARD_S = 15
"""At this length, the quadratic parsers that this test was written for took between 10 seconds and minutes."""


def _process(entry_point: str, text: str, size: int) -> None:
    TEXT_ENTRY_POINTS[entry_point](TEXTS[text](size))


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    opened = WorkerPool(max_workers=1, idle_s=300)
    yield opened
    opened.close()


@pytest.mark.parametrize("entry_point", TEXT_ENTRY_POINTS)
async def test_hostile_texts_are_processed_in_linear_time(pool: WorkerPool, entry_point: str) -> None:
    size = TEXT_CHARS // 10 if entry_point in SLOW_ENTRY_POINTS else TEXT_CHARS
    for text in TEXTS:
        await pool.run(f"{entry_point} of {text}", _GUARD_S, _process, entry_point, text, size)


def _process_quadratically(text: str) -> int:
    return sum(text.count("x", position) for position in range(len(text)))


async def test_the_guard_notices_quadratic_time(pool: WorkerPool) -> None:
    with pytest.raises(TooMuchWork, match="took longer"):
        await pool.run("Counting", 1, _process_quadratically, "(" * TEXT_CHARS)
