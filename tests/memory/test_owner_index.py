"""An owner index that is updated in steps equals one that is read at once."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from coterie.memory import Memory, signals
from coterie.memory.index import owner_index
from coterie.memory.index.owner_index import OwnerIndex
from coterie.memory.recall import RecallService

WORDS = ["amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "isle", "jetty", "knoll", "loch"]


def arrays(index: OwnerIndex) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    plain = ("vectors", "tokens", "starts", "piece_counts", "signs", "previous", "following", "weight")
    # Codes depend on the order of first use, so compare the strings.
    named = {"streams": index.streams, "types": index.types}
    derived = {
        name: np.array([str(codes.values[at]) for at in index.columns[name[:-1]]]) for name, codes in named.items()
    }
    _, first, inverse = np.unique(index.session, return_index=True, return_inverse=True)
    derived |= {"session": first[inverse], "doc": index.doc, "ids": np.array(index.ids)}
    return {name: getattr(index, name) for name in plain} | derived


@pytest.mark.parametrize("by_signs", [False, True])
def test_m4_an_index_updated_in_steps_equals_one_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_signs: bool
) -> None:
    if by_signs:
        for module in (owner_index, signals):
            monkeypatch.setattr(module, "SIGN_SEARCH_ABOVE", 20)
    rng = random.Random(7)
    known: list[str] = []
    with Memory(tmp_path / "memory.db") as memory:
        growing = RecallService(memory.store, memory.vectors)
        for _ in range(30):
            for _ in range(rng.randint(1, 6)):
                text = " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) + f" {len(known)}"
                known.append(memory.add(text, owner="mara", room=f"room:{rng.randint(1, 3)}"))
            if rng.random() < 0.4:
                memory.forget(known.pop(rng.randrange(len(known))))
            growing.index_of("mara")
        grown, read = growing.index_of("mara"), RecallService(memory.store, memory.vectors).index_of("mara")
    assert grown is not None
    assert read is not None
    one, other = arrays(grown), arrays(read)
    assert {name: np.array_equal(one[name], other[name]) for name in one} == dict.fromkeys(one, True)
    assert bool(len(read.signs)) is by_signs
