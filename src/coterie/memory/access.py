"""Access rules for memories. They are applied before ranking, so that hidden memories cannot affect any score.

1. The owner witnessed it or was told it. 2. It may be disclosed in this room, to the people present. 3. It is not from
another fork of the same chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from coterie.memory.index.owner_index import Bools, OwnerIndex
from coterie.memory.records import StreamForks

ANYBODY = "*"
"""A value for `present` that stands for unknown people, to whom nothing private may be disclosed."""


@dataclass(frozen=True)
class Viewpoint:
    """Who recalls, in which room, and who is present."""

    owner: str
    room: str | None = None
    """The stream of the room; None if what is recalled is not disclosed anywhere."""
    present: frozenset[str] = field(default_factory=frozenset)
    """Everyone to whom it would be disclosed."""
    people: frozenset[str] = field(default_factory=frozenset)
    """The ids of people, as opposed to characters. What a person witnessed is not disclosed to people who did not."""

    @classmethod
    def of(
        cls, owner: str, room: str | None = None, present: Iterable[str] = (), people: Iterable[str] = ()
    ) -> Viewpoint:
        return cls(owner, room, frozenset(present) - {owner}, frozenset(people))


def may_recall(
    view: Viewpoint, *, witnesses: Iterable[str], told_by: str | None, private: bool, disclosure: str, room: str
) -> bool:
    """The first two rules, for one memory."""
    known_by = set(witnesses)
    if view.owner not in known_by and not told_by:
        return False
    if disclosure == "open":
        return True
    if disclosure == "room" and room != view.room:
        return False
    people = known_by & view.people
    if people and not view.present & view.people <= people:
        return False
    return not private or view.present <= known_by | {view.owner, told_by}


def allowed_mask(index: OwnerIndex, view: Viewpoint, forks: StreamForks) -> Bools:
    """For each memory of the index, whether this viewpoint may recall it."""
    if not len(index):
        return np.zeros(0, bool)
    streams = index.streams.values
    visible = np.array([not forks.is_other_branch(stream or "", view.room) for stream in streams], bool)
    in_room = np.zeros(len(index.settings.values), bool)
    elsewhere = np.zeros(len(index.settings.values), bool)
    for code, setting in enumerate(index.settings.values):
        witnesses, told_by, private, disclosure = json.loads(setting or "[]")
        fields = {"witnesses": json.loads(witnesses), "told_by": told_by, "private": private, "disclosure": disclosure}
        in_room[code] = may_recall(view, room=view.room or "", **fields)
        elsewhere[code] = disclosure != "room" and in_room[code]
    stream, setting_codes = index.columns["stream"], index.columns["setting"]
    room_stream = index.streams.lookup(view.room)
    allowed: Bools = np.where(stream == room_stream, in_room[setting_codes], elsewhere[setting_codes])
    in_visible_stream: Bools = visible[stream]
    return allowed & in_visible_stream
