"""Detection and merging of duplicate memories, without a model.

Similar vectors are not enough: "likes tea" is close to "likes coffee". Two texts are duplicates only if every content
word has a close counterpart in the other text, and numbers, negation and names agree. Words that exclude each other
(sister and brother, May and June, bought and sold) are never counterparts.
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
from coterie.memory.text import MONTHS, digest, is_negated, keywords, numbers_in

DUPLICATE_COSINE = 0.95
_MIN_COSINE = 0.78
_WORST_OF_SAME = 0.3
_MEAN_OF_NEAR = 0.72
_WORST_OF_NEAR = 0.42
_STEM = 5
_BLOCK = 512
_FILLERS = frozenset(
    "really something someone quite also just actually basically kind lot thing things".split()  # noqa: SIM905
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
_MAX_LENGTH = 4_000
"""Characters. Every word is compared with every other one: longer texts are duplicates only if they are the same."""


def is_duplicate(text: str, other: str) -> bool:
    """Whether `other` adds nothing to `text`."""
    if digest(text) == digest(other):
        return True
    if max(len(text), len(other)) > _MAX_LENGTH:
        return False
    if numbers_in(text) != numbers_in(other) or is_negated(text) != is_negated(other) or not _names_agree(text, other):
        return False
    words, other_words = _content_words(text), _content_words(other)
    if not words or not other_words or _contradict(words, other_words):
        return False
    first, second = static_embedder().embed([text, other])
    cosine = float(first @ second) / GRID**2
    if cosine < _MIN_COSINE:
        return False
    scores = [_match_scores(words, other_words), _match_scores(other_words, words)]
    mean, worst = min(score[0] for score in scores), min(score[1] for score in scores)
    if cosine >= DUPLICATE_COSINE and worst >= _WORST_OF_SAME:
        return True
    return mean >= _MEAN_OF_NEAR and worst >= _WORST_OF_NEAR


def _match_scores(words: list[str], other_words: list[str]) -> tuple[float, float]:
    """The mean and the minimum over the words of the similarity to the closest of the other words."""
    stems = {word[:_STEM] for word in other_words}
    vectors = np.concatenate([_word_vectors(word) for word in other_words])
    scores = []
    for word in words:
        if word[:_STEM] in stems:
            scores.append(1.0)
        else:
            scores.append(float((_word_vectors(word) @ vectors.T).max(1).mean()) / GRID**2)
    return sum(scores) / len(scores), min(scores)


@functools.lru_cache(maxsize=4_096)
def _word_vectors(word: str) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    embedder = static_embedder()
    return embedder.unit_rows(embedder.tokens(word))


def _contradict(words: list[str], other_words: list[str]) -> bool:
    """Whether the other text has a word that excludes one of this text, but not the word itself."""
    for these, others in ((words, other_words), (other_words, words)):
        classes = {_CLASS_OF[word] for word in others if word in _CLASS_OF}
        if any(word in _CLASS_OF and word not in others and _CLASS_OF[word] in classes for word in these):
            return True
    return False


def _content_words(text: str) -> list[str]:
    return [word for word in keywords(text) if word not in _FILLERS]


def _names_agree(text: str, other: str) -> bool:
    """Whether each name in the middle of a sentence occurs in the other text."""
    return all(
        re.sub(r"['’]s$", "", name.lower()) in searched.lower()
        for named, searched in ((text, other), (other, text))
        for name in _NAME.findall(named)
    )


def merge_duplicates(store: Store, recall: RecallService) -> int:
    """Merge duplicates and return their number. It is idempotent: a second run finds nothing to merge."""
    merged = 0
    for owner in list_owners(store):
        index = recall.index_of(owner)
        new_events = [] if index is None else _find_merges(store, recall, index)
        if new_events:
            store.append_blocking(new_events)
            merged += len(new_events)
    return merged


def _find_merges(store: Store, recall: RecallService, index: OwnerIndex) -> list[NewEvent]:
    """Merge events for duplicates in the same room with the same witnesses and access; the earlier memory is kept."""
    superseded = {(stream, memory_id) for memory_id, entries in index.superseded.items() for stream, _, _ in entries}
    order = np.lexsort((index.doc, index.columns["event"]))
    new_events: list[NewEvent] = []
    merged: set[int] = set()
    for start in range(0, len(order), _BLOCK):
        rows = order[start : start + _BLOCK]
        cosine = index.vectors[rows].astype(np.float32) @ index.vectors[order].astype(np.float32).T / GRID**2
        for row, column in zip(*np.nonzero(cosine >= DUPLICATE_COSINE), strict=True):
            later, earlier = int(rows[row]), int(order[column])
            if (
                start + int(row) <= int(column)
                or later in merged
                or earlier in merged
                or not _same_setting(index, later, earlier)
            ):
                continue
            stream = index.streams.values[int(index.columns["stream"][later])] or ""
            keys = [(stream, index.ids[later]), (stream, index.ids[earlier])]
            if not superseded.isdisjoint(keys):
                continue
            records = read_records(store, keys, recall.forks(), None)
            if len(records) == 2 and is_duplicate(records[keys[0]].text, records[keys[1]].text):
                merged.add(later)
                payload = MemoryMerged(id=index.ids[later], into=index.ids[earlier], owner=index.owner)
                new_events.append(NewEvent(stream, payload))
    return new_events


def _same_setting(index: OwnerIndex, position: int, other: int) -> bool:
    columns = index.columns
    return all(columns[name][position] == columns[name][other] for name in ("stream", "setting", "speaker", "type"))
