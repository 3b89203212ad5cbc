"""Keeping memory tidy: near-duplicates become one. Fading needs no upkeep, since it is computed.

Run it as often as you like: what it decides depends only on what is stored, and what it has decided once is
stored, so the second run finds nothing to do.
"""

from __future__ import annotations

import numpy as np

from coterie.kernel import NewEvent, Store
from coterie.memory.events import MemoryMerged
from coterie.memory.likeness import DUPLICATE_COSINE, is_duplicate
from coterie.memory.reading import read_records
from coterie.memory.recall import RecallService, list_owners
from coterie.memory.shelf import OwnerIndex
from coterie.memory.static import GRID

_BLOCK = 512


def merge_duplicates(store: Store, recall: RecallService) -> int:
    """Merge what says the same. Returns how many memories were merged into others."""
    merged = 0
    for owner in list_owners(store):
        shelf = recall.index_of(owner)
        drafts = [] if shelf is None else _find_merges(store, recall, shelf)
        if drafts:
            store.append_blocking(drafts)
            merged += len(drafts)
    return merged


def _find_merges(store: Store, recall: RecallService, shelf: OwnerIndex) -> list[NewEvent]:
    """Pairs in one room, before the same people, that are near enough; the later one gives way to the earlier."""
    gone = {(stream, memory_id) for memory_id, entries in shelf.superseded.items() for stream, _, _ in entries}
    order = np.lexsort((shelf.doc, shelf.columns["event"]))
    drafts: list[NewEvent] = []
    taken: set[int] = set()
    for start in range(0, len(order), _BLOCK):
        rows = order[start : start + _BLOCK]
        alike = shelf.vectors[rows].astype(np.float32) @ shelf.vectors[order].astype(np.float32).T / GRID**2
        for row, column in zip(*np.nonzero(alike >= DUPLICATE_COSINE), strict=True):
            later, earlier = int(rows[row]), int(order[column])
            if (
                start + int(row) <= int(column)
                or later in taken
                or earlier in taken
                or not _same_setting(shelf, later, earlier)
            ):
                continue
            keys = [
                (shelf.streams.values[int(shelf.columns["stream"][at])] or "", shelf.ids[at]) for at in (later, earlier)
            ]
            if keys[0] in gone or keys[1] in gone:
                continue
            records = read_records(store, keys, recall.forks(), None)
            if len(records) == 2 and is_duplicate(records[keys[0]].text, records[keys[1]].text):
                taken.add(later)
                payload = MemoryMerged(id=keys[0][1], into=keys[1][1], owner=shelf.owner)
                drafts.append(NewEvent(keys[0][0], payload))
    return drafts


def _same_setting(shelf: OwnerIndex, one: int, other: int) -> bool:
    columns = shelf.columns
    return all(columns[name][one] == columns[name][other] for name in ("stream", "setting", "speaker", "type"))
