"""Who may know. Applied before anything is ranked, so that what is not allowed cannot even be counted.

First gate: the owner witnessed it or was told. Second: whether it may be spoken of here, before these people.
Third: forked lines of one room do not know of each other's futures.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from coterie.memory.index.owner_index import OwnerIndex
from coterie.memory.records import StreamForks

Bools = NDArray[np.bool_]
ANYBODY = "*"
"""Among those present: whoever else may be listening. Nobody's secret is told before them."""


@dataclass(frozen=True)
class Viewpoint:
    """Who remembers, where, and before whom."""

    owner: str
    room: str | None = None
    """The stream of the room in which it will be spoken. None: nowhere, the owner only thinks."""
    present: frozenset[str] = field(default_factory=frozenset)
    """Everybody who would hear it."""
    people: frozenset[str] = field(default_factory=frozenset)
    """Who of all there are is a person: what one of them was there for is not told to another who was not."""

    @classmethod
    def of(
        cls, owner: str, room: str | None = None, present: Iterable[str] = (), people: Iterable[str] = ()
    ) -> Viewpoint:
        return cls(owner, room, frozenset(present) - {owner}, frozenset(people))


def may_recall(
    view: Viewpoint, *, witnesses: Iterable[str], told_by: str | None, private: bool, disclosure: str, room: str
) -> bool:
    """The first two gates, for one memory."""
    there = set(witnesses)
    if view.owner not in there and not told_by:
        return False
    if disclosure == "open":
        return True
    if disclosure == "room" and room != view.room:
        return False
    if (known_to := there & view.people) and not view.present & view.people <= known_to:
        return False
    return not private or view.present <= there | {view.owner, told_by}


def allowed_mask(index: OwnerIndex, view: Viewpoint, forks: StreamForks) -> Bools:
    """Per memory of the shelf, whether this viewpoint may recall it."""
    streams = index.streams.values
    visible = np.array([not forks.is_other_branch(stream or "", view.room) for stream in streams], bool)
    here = index.streams.lookup(view.room)
    elsewhere = np.zeros(len(index.settings.values), bool)
    at_home = np.zeros(len(index.settings.values), bool)
    for code, setting in enumerate(index.settings.values):
        witnesses, told_by, private, disclosure = json.loads(setting or "[]")
        common = {"witnesses": json.loads(witnesses), "told_by": told_by, "private": private, "disclosure": disclosure}
        at_home[code] = may_recall(view, room=view.room or "", **common)
        elsewhere[code] = disclosure != "room" and at_home[code]
    if not len(index):
        return np.zeros(0, bool)
    stream, setting_codes = index.columns["stream"], index.columns["setting"]
    by_place: Bools = np.where(stream == here, at_home[setting_codes], elsewhere[setting_codes])
    by_line: Bools = visible[stream]
    return by_place & by_line
