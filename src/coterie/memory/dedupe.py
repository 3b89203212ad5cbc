"""Whether two texts say the same thing, decided without a model and on the careful side.

Vectors alone merge "likes tea" with "likes coffee". So besides being near, two texts must leave nothing of either
unmatched: every word that carries weight must have a close counterpart in the other. Numbers, negation and names
must agree, and words that are near in meaning because they exclude each other (sister and brother, May and
June, bought and sold) are never counterparts.
"""

from __future__ import annotations

import functools
import re

import numpy as np

from coterie.eventstore import NewEvent, Store
from coterie.memory.events import MemoryMerged
from coterie.memory.index.embedders import GRID, static_embedder
from coterie.memory.index.owner_index import OwnerIndex
from coterie.memory.recall import RecallService, list_owners
from coterie.memory.records import read_records
from coterie.memory.text import MONTHS, STOP_WORDS, digest, is_negated, numbers_in

DUPLICATE_COSINE = 0.95
_MIN_COSINE = 0.78
_WORST_OF_SAME = 0.3
_MEAN_OF_NEAR = 0.72
_WORST_OF_NEAR = 0.42
_STEM = 5
_FILLERS = frozenset(
    [
        "really",
        "something",
        "someone",
        "quite",
        "also",
        "just",
        "actually",
        "basically",
        "kind",
        "lot",
        "thing",
        "things",
    ]
)
_EXCLUSIVE = (
    tuple(MONTHS),
    ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    ("spring", "summer", "autumn", "fall", "winter"),
    ("mother", "father", "sister", "brother", "son", "daughter", "wife", "husband", "aunt", "uncle", "cousin"),
    ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white", "grey"),
    ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    ("north", "south", "east", "west"),
    ("left", "right"),
    ("bought", "sold", "buys", "sells", "buy", "sell"),
    ("loves", "hates", "love", "hate", "likes", "dislikes", "like", "dislike"),
    ("married", "divorced", "engaged", "single", "widowed"),
    ("started", "stopped", "quit", "began", "finished"),
    ("won", "lost"),
    ("before", "after"),
)
_CLASS_OF = {word: number for number, words in enumerate(_EXCLUSIVE) for word in words}
_NAME = re.compile(r"(?<![.!?]\s)(?<!^)\b[A-Z][\w'’]*")


def is_duplicate(one: str, other: str) -> bool:
    """Whether `other` adds nothing to `one`."""
    if digest(one) == digest(other):
        return True
    if numbers_in(one) != numbers_in(other) or is_negated(one) != is_negated(other) or not _names_agree(one, other):
        return False
    mine, theirs = _content_words(one), _content_words(other)
    if not mine or not theirs or _contradict(mine, theirs):
        return False
    first, second = static_embedder().embed([one, other])
    cosine = float(first @ second) / GRID**2
    if cosine < _MIN_COSINE:
        return False
    scores = [_match_scores(mine, theirs), _match_scores(theirs, mine)]
    mean, worst = min(score[0] for score in scores), min(score[1] for score in scores)
    if cosine >= DUPLICATE_COSINE and worst >= _WORST_OF_SAME:
        return True
    return mean >= _MEAN_OF_NEAR and worst >= _WORST_OF_NEAR


def _match_scores(mine: list[str], theirs: list[str]) -> tuple[float, float]:
    """How well each telling word finds its like in the other text: on average, and at worst."""
    stems = {word[:_STEM] for word in theirs}
    there = np.concatenate([_word_vectors(word) for word in theirs])
    scores = []
    for word in mine:
        if word[:_STEM] in stems:
            scores.append(1.0)
        else:
            scores.append(float((_word_vectors(word) @ there.T).max(1).mean()) / GRID**2)
    return sum(scores) / len(scores), min(scores)


@functools.lru_cache(maxsize=4_096)
def _word_vectors(word: str) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    offline = static_embedder()
    return offline.unit_rows(offline.tokens(word))


def _contradict(mine: list[str], theirs: list[str]) -> bool:
    """Whether a word of one text has a rival, and not itself, in the other."""
    for here, there in ((mine, theirs), (theirs, mine)):
        rivals = {_CLASS_OF[word] for word in there if word in _CLASS_OF}
        if any(word in _CLASS_OF and word not in there and _CLASS_OF[word] in rivals for word in here):
            return True
    return False


def _content_words(text: str) -> list[str]:
    found = dict.fromkeys(re.findall(r"[^\W_]+", text.lower()))
    return [word for word in found if word not in STOP_WORDS and word not in _FILLERS]


def _names_agree(one: str, other: str) -> bool:
    """A name in the middle of a sentence must stand in the other text too."""
    lowered_one, lowered_other = one.lower(), other.lower()
    return all(_bare(name) in lowered_other for name in _NAME.findall(one)) and all(
        _bare(name) in lowered_one for name in _NAME.findall(other)
    )


def _bare(name: str) -> str:
    return re.sub(r"['’]s$", "", name.lower())


# Keeping memory tidy: near-duplicates become one. Fading needs no upkeep, since it is computed.
#
# Run it as often as you like: what it decides depends only on what is stored, and what it has decided once is
# stored, so the second run finds nothing to do.


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
