"""A shelf that grew a little at a time equals one that is read at once, whatever was added and forgotten between."""

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


def arrays(one: OwnerIndex) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    plain = ("vectors", "tokens", "starts", "piece_counts", "signs", "previous", "following", "weight")
    # Codes are given in the order in which strings were met, and mean the same without having the same number.
    named = {"streams": one.streams, "types": one.types}
    told = {name: np.array([str(codes.values[at]) for at in one.columns[name[:-1]]]) for name, codes in named.items()}
    _, first, inverse = np.unique(one.session, return_index=True, return_inverse=True)
    told |= {"session": first[inverse], "doc": one.doc, "ids": np.array(one.ids)}
    return {name: getattr(one, name) for name in plain} | told


@pytest.mark.parametrize("by_signs", [False, True])
def test_m4_grown_little_by_little_or_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_signs: bool
) -> None:
    if by_signs:
        for module in (owner_index, signals):
            monkeypatch.setattr(module, "SIGN_SEARCH_ABOVE", 20)
    chance = random.Random(7)
    known: list[str] = []
    with Memory(tmp_path / "memory.db") as memory:
        growing = RecallService(memory.store, memory.vectors)
        for _ in range(30):
            for _ in range(chance.randint(1, 6)):
                text = " ".join(chance.choices(WORDS, k=chance.randint(1, 12))) + f" {len(known)}"
                known.append(memory.add(text, owner="mara", room=f"room:{chance.randint(1, 3)}"))
            if chance.random() < 0.4:
                memory.forget(known.pop(chance.randrange(len(known))))
            growing.index_of("mara")
        grown, read = growing.index_of("mara"), RecallService(memory.store, memory.vectors).index_of("mara")
    assert grown is not None
    assert read is not None
    one, other = arrays(grown), arrays(read)
    assert {name: np.array_equal(one[name], other[name]) for name in one} == dict.fromkeys(one, True)
    assert bool(len(read.signs)) is by_signs
