"""M2: planted secrets do not leak, and the check finds a leak if there is one.

`bench.leaks` has the large run.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.leaks import check_leaks
from coterie.memory import Memory, recall
from coterie.memory.access import Viewpoint
from coterie.memory.index.owner_index import Bools, OwnerIndex
from coterie.memory.records import StreamForks


async def test_m2_no_planted_secret_leaks(tmp_path: Path) -> None:
    with Memory(tmp_path / "m.db") as memory:
        figures = await check_leaks(memory, secrets=40, recalls=300, seed=9)
    assert figures["leaked"] == 0, figures["leaks"]
    assert figures["returned"] > 500
    assert figures["index_faults"] == 0


@pytest.mark.parametrize("rule", ["people", "forks"])
async def test_m2_the_leak_check_detects_a_missing_access_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    if rule == "people":

        def allow_all(index: OwnerIndex, view: Viewpoint, forks: StreamForks) -> Bools:
            return np.ones(len(index), bool)

        monkeypatch.setattr(recall, "allowed_mask", allow_all)
    else:
        monkeypatch.setattr(StreamForks, "is_other_branch", lambda *_: False)
    with Memory(tmp_path / "m.db") as memory:
        figures = await check_leaks(memory, secrets=40, recalls=300, seed=9)
    assert figures["leaked"] > 0
