"""M2 at small size on every run; `bench.leaks` does it with 100,000 recalls. And a check that it can find a leak."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.leaks import play
from coterie.memory import Memory, access, recall
from coterie.memory.access import Viewpoint
from coterie.memory.index.owner_index import OwnerIndex
from coterie.memory.records import StreamForks


async def test_m2_no_planted_secret_leaks(tmp_path: Path) -> None:
    with Memory(tmp_path / "m.db") as memory:
        figures = await play(memory, secrets=40, recalls=300, seed=9)
    assert figures["leaked"] == 0, figures["leaks"]
    assert figures["returned"] > 500
    assert figures["index_faults"] == 0


@pytest.mark.parametrize("gate", ["people", "lines"])
async def test_m2_the_law_notices_a_gate_that_stands_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: str
) -> None:
    if gate == "people":

        def no_gate(shelf: OwnerIndex, view: Viewpoint, lines: StreamForks) -> access.Bools:
            return np.ones(len(shelf), bool)

        monkeypatch.setattr(recall, "allowed_mask", no_gate)
    else:
        monkeypatch.setattr(StreamForks, "is_other_branch", lambda *_: False)
    with Memory(tmp_path / "m.db") as memory:
        figures = await play(memory, secrets=40, recalls=300, seed=9)
    assert figures["leaked"] > 0
