"""How memories hold on to each other while they are ranked: links carry scores, updates take them over."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coterie.memory.index.owner_index import OwnerIndex
from coterie.memory.ranking import Ranked
from coterie.memory.records import LINK_WEIGHT

Bools = NDArray[np.bool_]

_SHARE = 0.2
_SEEDS = 10
_DEEP = ("related_to", "part_of")
_STEP = 1e-4


def spread_over_links(shelf: OwnerIndex, ranked: Ranked, open_to: Bools, visible: set[str]) -> None:
    """Give what the best are linked to a share of their score; related_to and part_of to depth two."""
    if not shelf.links or not len(ranked.positions):
        return
    positions = shelf.positions()
    given: dict[int, float] = {}
    order = np.lexsort((shelf.doc[ranked.positions], -np.round(ranked.score, 6)))[:_SEEDS]
    for index in order.tolist():
        at, score = int(ranked.positions[index]), float(ranked.score[index])
        reached = [(shelf.ids[at], 1.0, 1)]
        seen = {shelf.ids[at]}
        while reached:
            memory_id, share, depth = reached.pop(0)
            for stream, relation, other in shelf.links.get(memory_id, ()):
                if stream not in visible or other in seen or (depth == 2 and relation not in _DEEP):
                    continue
                seen.add(other)
                passed = share * LINK_WEIGHT[relation]
                for target in positions.get(other, ()):
                    if open_to[target]:
                        given[target] = max(given.get(target, 0.0), _SHARE * passed * max(score, 0.0) / depth)
                if depth == 1 and relation in _DEEP:
                    reached.append((other, passed, 2))
    _add_candidates(ranked, sorted(given))
    part = np.array([given.get(int(at), 0.0) for at in ranked.positions])
    ranked.parts["links"] = np.round(part, 6)
    ranked.score = ranked.score + ranked.parts["links"]


def apply_supersessions(shelf: OwnerIndex, ranked: Ranked, open_to: Bools, visible: set[str]) -> dict[int, int]:
    """Let what superseded a candidate outrank it. Returns, per superseded memory, the one that holds now."""
    over: dict[int, int] = {}
    if not shelf.superseded:
        return over
    positions = shelf.positions()
    for at in ranked.positions.tolist():
        if (now := _latest_version(shelf, at, positions, open_to, visible)) is not None:
            over[at] = now
    _add_candidates(ranked, sorted(set(over.values())))
    place = {int(at): index for index, at in enumerate(ranked.positions)}
    lifted = np.zeros(len(ranked.positions))
    for old, now in over.items():
        target, source = place[now], place[old]
        short = ranked.score[source] + _STEP - (ranked.score[target] + lifted[target])
        lifted[target] += max(short, 0.0)
    ranked.parts["updates"] = np.round(lifted, 6)
    ranked.score = ranked.score + ranked.parts["updates"]
    return over


def _latest_version(
    shelf: OwnerIndex, at: int, positions: dict[str, list[int]], open_to: Bools, visible: set[str]
) -> int | None:
    """Follow supersessions that this viewpoint knows of, to the memory that stands at their end."""
    memory_id, found, seen = shelf.ids[at], None, {shelf.ids[at]}
    while True:
        later = [by for stream, by, _ in shelf.superseded.get(memory_id, ()) if stream in visible]
        if not later or later[-1] in seen:
            return found
        memory_id = later[-1]
        seen.add(memory_id)
        here = [index for index in positions.get(memory_id, ()) if open_to[index]]
        if here:
            found = here[0]


def _add_candidates(ranked: Ranked, wanted: list[int]) -> None:
    """Make memories candidates that were none, with a score of nothing."""
    known = set(ranked.positions.tolist())
    fresh = [at for at in wanted if at not in known]
    if fresh:
        ranked.positions = np.concatenate([ranked.positions, np.array(fresh, np.int64)])
        ranked.score = np.concatenate([ranked.score, np.zeros(len(fresh))])
        ranked.parts = {name: np.concatenate([part, np.zeros(len(fresh))]) for name, part in ranked.parts.items()}
