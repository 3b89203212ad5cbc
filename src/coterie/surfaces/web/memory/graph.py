"""Memories and people as a picture: who is in what, and what belongs together. M7

The layout is a few rounds of springs and repulsion from fixed beginnings, so the same memories always give the same
picture. It is drawn here as SVG: no library in the browser, and every dot is a link.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.memory.records import MemoryRecord

MAX_MEMORIES = 80
WIDTH, HEIGHT = 1000.0, 640.0
_ROUNDS = 220
_MARGIN = 60.0


@dataclass(frozen=True)
class PersonNode:
    name: str
    x: float
    y: float
    count: int


@dataclass(frozen=True)
class MemoryNode:
    record: MemoryRecord
    x: float
    y: float
    r: float


@dataclass(frozen=True)
class GraphEdge:
    x1: float
    y1: float
    x2: float
    y2: float
    relation: str
    """Empty between a memory and a person in it."""


@dataclass(frozen=True)
class Graph:
    people: list[PersonNode]
    dots: list[MemoryNode]
    lines: list[GraphEdge]


def graph(records: Sequence[MemoryRecord], links: Sequence[tuple[str, str, str]], name: Callable[[str], str]) -> Graph:
    """Of at most `MOST` memories: what is pinned and matters most comes first, then what is newest."""
    unique = {record.id: record for record in records}
    kept = sorted(unique.values(), key=lambda r: (not r.pinned, -r.significance, -r.when.timestamp(), r.id))[
        :MAX_MEMORIES
    ]
    who = {record.id: _people(record, name) for record in kept}
    people = sorted({person for in_it in who.values() for person in in_it})
    at = {key: place for place, key in enumerate([*people, *who])}
    ties = [(at[person], at[memory], "") for memory, in_it in who.items() for person in in_it]
    ties += [(at[source], at[target], relation) for source, relation, target in links if source in at and target in at]
    place = _layout(len(at), len(people), [(a, b) for a, b, _ in ties])
    count = {person: sum(person in in_it for in_it in who.values()) for person in people}
    return Graph(
        [PersonNode(person, *place[at[person]], count[person]) for person in people],
        [MemoryNode(record, *place[at[record.id]], 4.0 + 2.0 * record.significance) for record in kept],
        [GraphEdge(*place[a], *place[b], relation) for a, b, relation in ties],
    )


def _people(record: MemoryRecord, name: Callable[[str], str]) -> set[str]:
    """Who is in it, beside whose memory it is. Some are known by an id and some by a name: a name is all there is."""
    named = {name(who) for who in (*record.witnesses, *record.about, record.speaker, record.told_by) if who}
    return named - {"", name(record.owner)}


def _layout(count: int, people: int, ties: list[tuple[int, int]]) -> list[tuple[float, float]]:
    if not count:
        return []
    turn = np.arange(count) * 2.399963  # the golden angle: no two begin in one place
    reach = np.sqrt((np.arange(count) + 0.5) / count)
    at = np.stack([np.cos(turn), np.sin(turn)], 1) * reach[:, None]
    ends = np.array(ties, dtype=np.int64).reshape(-1, 2)
    weight = np.ones(count)
    weight[:people] = 4.0
    for round_ in range(_ROUNDS):
        away = at[:, None] - at[None]
        near = (away**2).sum(2) + 1e-3
        push = (away / near[..., None] * weight[None, :, None]).sum(1) * 0.011
        pull = np.zeros_like(at)
        if len(ends):
            along = at[ends[:, 1]] - at[ends[:, 0]]
            np.add.at(pull, ends[:, 0], along * 0.05)
            np.add.at(pull, ends[:, 1], -along * 0.05)
        step = push + pull - at * 0.02
        size = np.maximum(np.sqrt((step**2).sum(1, keepdims=True)), 1e-9)
        at = at + step / size * np.minimum(size, 0.12 * (1 - round_ / _ROUNDS) + 0.002)
    low, high = at.min(0), at.max(0)
    span = np.maximum(high - low, 1e-6)
    room = np.array([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN])
    fitted = (at - low) / span * room + _MARGIN if count > 1 else np.array([[WIDTH / 2, HEIGHT / 2]])
    return [(round(float(x), 1), round(float(y), 1)) for x, y in fitted]
