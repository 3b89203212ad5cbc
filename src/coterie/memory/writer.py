"""Writing memories: remove secrets, then decide between a new memory, more evidence for a known one, or nothing.

Decisions are returned as events, so that a mode can append them with its own in one transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
from pydantic import ValidationError

from coterie.base.ids import new_id
from coterie.base.redaction import redact
from coterie.eventstore import NewEvent, Store
from coterie.memory.access import Viewpoint, may_recall
from coterie.memory.dedupe import is_duplicate
from coterie.memory.errors import BadMemory
from coterie.memory.events import MemoryAdded, MemoryConfirmed
from coterie.memory.index.embedders import static_embedder
from coterie.memory.recall import RecallService
from coterie.memory.records import Disclosure, MemoryType, StreamForks
from coterie.memory.signals import cosines
from coterie.memory.text import NameMatcher, digest

_CARD = re.compile(r"\b(?:\d[ -]?){13,19}\b")
# With the lengths that addresses may have: without them, every word would be the start of a search to the end.
_EMAIL = re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,10}\b")
_PHONE = re.compile(r"(?<![\w.])(?:\+\d{1,3}[\s./-]?)?(?:\(\d{1,4}\)[\s./-]?)?\d{2,4}(?:[\s./-]?\d{2,4}){2,4}(?![\w])")
_DIGITS = re.compile(r"\d[ -]?\d[ -]?\d[ -]?\d[ -]?\d")
_SECRET_HINT = re.compile(r"(?i)pass|pin|key")
_PASSWORD = re.compile(
    r"(?i)\b(pass(?:word|phrase|code)|pin(?: code)?|api key|secret key)(\s+(?:is|was)\s+|\s*[:=]\s*)(\S+)"
)


def remove_secrets(text: str) -> str:
    """Replace credentials and card numbers by placeholders."""
    masked = redact(text)
    if _SECRET_HINT.search(masked):
        masked = _PASSWORD.sub(r"\1\2[secret]", masked)
    if not _DIGITS.search(masked):
        return masked
    return _CARD.sub(lambda match: "[card]" if _is_card(match[0]) else match[0], masked)


def remove_contacts(text: str) -> str:
    """Replace e-mail addresses and telephone numbers, for memories about third parties."""
    cleared = _EMAIL.sub("[email]", text) if "@" in text else text
    return _PHONE.sub(lambda match: "[phone]" if _is_phone(match[0]) else match[0], cleared)


def _is_card(text: str) -> bool:
    digits = [int(letter) for letter in text if letter.isdigit()]
    doubled = [
        digit if index % 2 else sum(divmod(2 * digit, 10)) for index, digit in enumerate(digits, len(digits) % 2)
    ]
    return 13 <= len(digits) <= 19 and sum(doubled) % 10 == 0


def _is_phone(text: str) -> bool:
    digits = sum(letter.isdigit() for letter in text)
    looks_like_date = re.fullmatch(r"\s*\d{4}[-/.]\d{1,2}[-/.]\d{1,2}\s*|\s*\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\s*", text)
    return digits >= 7 and looks_like_date is None


Stored = tuple[Any, ...]
"""stream, id, witnesses, told_by, private, disclosure"""
Verdict = Literal["added", "known", "forgotten"]

_SIMILAR_READ = 5
_SIMILAR_MIN_COSINE = 0.5


@dataclass(frozen=True)
class NewMemory:
    """A memory to be stored, if it is not known or forgotten."""

    text: str
    owner: str
    room: str
    type: MemoryType = "observation"
    scene: str | None = None
    speaker: str | None = None
    told_by: str | None = None
    witnesses: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    happened: datetime | None = None
    significance: int = 1
    confidence: float = 1.0
    reliability: float = 1.0
    pinned: bool = False
    private: bool = False
    disclosure: Disclosure = "people"
    id: str | None = None


@dataclass(frozen=True)
class PlannedWrite:
    """The decision on a `NewMemory` and the events that carry it out. A forgotten memory has no id."""

    id: str
    verdict: Verdict
    new_events: list[NewEvent] = field(default_factory=list)


@dataclass(frozen=True)
class Tombstone:
    owner: str
    id: str
    digest: bytes
    sources: frozenset[str]
    text: str


class MemoryWriter:
    """Plans the storing of memories. Known memories get more evidence; forgotten ones are not stored again."""

    def __init__(self, store: Store, recall: RecallService) -> None:
        self._store = store
        self._recall = recall

    def plan(
        self, memories: Sequence[NewMemory], *, by_meaning: bool = True, actor: str = "system", turn: str | None = None
    ) -> list[PlannedWrite]:
        """Decide on each memory. `by_meaning` also looks for duplicates in other words, with a search for each."""
        forks = self._recall.forks()
        cleaned = [_clean(new) for new in memories]
        digests = [digest(new.text) for new in cleaned]
        stored = self._with_digests(zip((new.owner for new in cleaned), digests, strict=True))
        tombstones = self._tombstones({new.owner for new in cleaned})
        added: dict[tuple[str, str, bytes], str] = {}
        known_sources: dict[str, set[str]] = {}
        writes: list[PlannedWrite] = []
        for new, text_digest in zip(cleaned, digests, strict=True):
            if tombstones.include(new, text_digest):
                writes.append(PlannedWrite("", "forgotten"))
                continue
            key = (new.owner, new.room, text_digest)
            existing = added.get(key) or _find_equivalent(new, stored.get((new.owner, text_digest), ()), forks)
            existing = existing or self._find_known_lines(new, forks)
            if existing is None and by_meaning:
                existing = self._find_similar(new, forks)
            if existing is not None:
                if existing not in known_sources:
                    known_sources[existing] = self._known_sources(existing)
                events = _confirmation(new, existing, known_sources[existing], actor, turn)
                writes.append(PlannedWrite(existing, "known", events))
                continue
            memory_id = new.id or new_id()
            added[key] = memory_id
            writes.append(
                PlannedWrite(memory_id, "added", [NewEvent(new.room, _payload(new, memory_id), actor, turn=turn)])
            )
        return writes

    def _find_known_lines(self, new: NewMemory, forks: StreamForks) -> str | None:
        """The first line's memory if every line is known, as when recalled memories are stored again."""
        lines = [line for line in new.text.splitlines() if line.strip()]
        if len(lines) < 2:
            return None
        digests = [digest(line) for line in lines]
        stored = self._with_digests((new.owner, line_digest) for line_digest in digests)
        memory_ids = [_find_equivalent(new, stored.get((new.owner, line_digest), ()), forks) for line_digest in digests]
        return memory_ids[0] if all(memory_ids) else None

    def _with_digests(self, keys: Iterable[tuple[str, bytes]]) -> dict[tuple[str, bytes], list[Stored]]:
        rows_by_key: dict[tuple[str, bytes], list[Stored]] = {}
        pairs = json.dumps([(owner, text_digest.hex()) for owner, text_digest in dict.fromkeys(keys)])
        for owner, text_digest, *stored in self._store.query(
            "SELECT m.owner, m.digest, m.stream, m.id, m.witnesses, m.told_by, m.private, m.disclosure"
            " FROM json_each(?) j CROSS JOIN memory m WHERE m.owner = j.value->>0 AND m.digest = unhex(j.value->>1)"
            " ORDER BY m.event, m.stream",
            (pairs,),
        ):
            rows_by_key.setdefault((owner, text_digest), []).append(tuple(stored))
        return rows_by_key

    def _tombstones(self, owners: set[str]) -> _Tombstones:
        rows = self._store.query(
            "SELECT t.owner, t.id, t.digest, t.sources, m.text FROM memory_tombstone t"
            " LEFT JOIN memory m ON m.id = t.id"
        )
        return _Tombstones(
            Tombstone(owner, memory_id, text_digest, frozenset(json.loads(sources)), text or "")
            for owner, memory_id, text_digest, sources, text in rows
            if owner in owners
        )

    def _find_similar(self, new: NewMemory, forks: StreamForks) -> str | None:
        index = self._recall.index_of(new.owner)
        if index is None or not len(index):
            return None
        names = NameMatcher([*new.witnesses, *([new.speaker] if new.speaker else [])])
        vector = static_embedder().embed([names.remove_from(new.text)])[0]
        cosine, _ = cosines(index, vector, np.ones(len(index), bool))
        for position in np.lexsort((index.doc, -np.round(cosine, 6)))[:_SIMILAR_READ].tolist():
            memory_id = index.ids[position]
            if cosine[position] < _SIMILAR_MIN_COSINE or memory_id in index.superseded:
                continue
            stream = index.streams.values[int(index.columns["stream"][position])]
            rows = self._store.query(
                "SELECT text, witnesses, told_by, private, disclosure, speaker FROM memory WHERE stream = ? AND id = ?",
                (stream, memory_id),
            )
            for text, witnesses, told_by, private, disclosure, speaker in rows:
                fields = (json.loads(witnesses), told_by, bool(private), disclosure)
                equivalent = speaker == new.speaker and _is_equivalent(new, stream or "", *fields, forks)
                if equivalent and is_duplicate(text, new.text):
                    return str(memory_id)
        return None

    def _known_sources(self, memory_id: str) -> set[str]:
        known: set[str] = set()
        for (sources,) in self._store.query("SELECT sources FROM memory WHERE id = ?", (memory_id,)):
            known.update(json.loads(sources))
        evidence = self._store.query("SELECT source FROM memory_evidence WHERE id = ?", (memory_id,))
        return known.union(source for (source,) in evidence)


class _Tombstones:
    """The forgotten memories of some owners, by what a new one may have in common with them."""

    def __init__(self, tombstones: Iterable[Tombstone]) -> None:
        self._digests: set[tuple[str, bytes]] = set()
        self._ids: set[tuple[str, str]] = set()
        self._by_source: dict[tuple[str, str], list[Tombstone]] = {}
        for tombstone in tombstones:
            self._digests.add((tombstone.owner, tombstone.digest))
            self._ids.add((tombstone.owner, tombstone.id))
            for source in tombstone.sources:
                self._by_source.setdefault((tombstone.owner, source), []).append(tombstone)

    def include(self, new: NewMemory, text_digest: bytes) -> bool:
        """Whether a tombstone has the same id or text, or the same source and meaning."""
        return (
            (new.owner, text_digest) in self._digests
            or (new.id is not None and (new.owner, new.id) in self._ids)
            or any(
                is_duplicate(tombstone.text, new.text)
                for source in dict.fromkeys(new.sources)
                for tombstone in self._by_source.get((new.owner, source), ())
            )
        )


def _confirmation(
    new: NewMemory, memory_id: str, known_sources: set[str], actor: str, turn: str | None
) -> list[NewEvent]:
    new_sources = tuple(source for source in new.sources if source not in known_sources)
    if not new_sources:
        return []
    payload = MemoryConfirmed(id=memory_id, owner=new.owner, sources=new_sources)
    return [NewEvent(new.room, payload, actor, turn=turn)]


def _find_equivalent(new: NewMemory, stored: Iterable[Stored], forks: StreamForks) -> str | None:
    for stream, memory_id, witnesses, told_by, private, disclosure in stored:
        if _is_equivalent(new, stream, json.loads(witnesses), told_by, bool(private), disclosure, forks):
            return str(memory_id)
    return None


def _is_equivalent(
    new: NewMemory,
    stream: str,
    witnesses: Sequence[str],
    told_by: str | None,
    private: bool,
    disclosure: str,
    forks: StreamForks,
) -> bool:
    """Whether the stored memory can be recalled wherever the new one could be, so that the new one is not needed."""
    if new.owner not in witnesses and not told_by:
        return False
    if stream == new.room:
        accessible = not private or (new.private and set(new.witnesses) <= set(witnesses))
        return accessible and disclosure in (new.disclosure, "people", "open")
    if private or disclosure == "room" or forks.is_other_branch(stream, new.room):
        return False
    return may_recall(
        Viewpoint.of(new.owner, new.room),
        witnesses=witnesses,
        told_by=told_by,
        private=False,
        disclosure=disclosure,
        room=stream,
    )


def _clean(new: NewMemory) -> NewMemory:
    text = remove_secrets(new.text.encode("utf-8", "replace").decode())
    if not text.replace("\0", "").strip():
        raise BadMemory("A memory needs some text; this one is empty.", "Give it a text.")
    changes: dict[str, Any] = {} if text == new.text else {"text": text}
    if new.happened is not None and new.happened.tzinfo is None:
        changes["happened"] = new.happened.replace(tzinfo=UTC)
    if not new.witnesses and not new.told_by:
        changes["witnesses"] = (new.owner,)
    return replace(new, **changes) if changes else new


def _payload(new: NewMemory, memory_id: str) -> MemoryAdded:
    fields = {name: value for name, value in vars(new).items() if name not in ("room", "id")}
    try:
        return MemoryAdded(id=memory_id, **fields)
    except ValidationError as error:
        problem = error.errors()[0]
        raise BadMemory(
            f"The memory's {'.'.join(map(str, problem['loc']))} is invalid: {problem['msg']}.",
            "Correct it and try again.",
        ) from None
