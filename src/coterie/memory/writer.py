"""What memory must not keep: credentials and card numbers of anyone, contact details of third parties."""

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
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_PHONE = re.compile(r"(?<![\w.])(?:\+\d{1,3}[\s./-]?)?(?:\(\d{1,4}\)[\s./-]?)?\d{2,4}(?:[\s./-]?\d{2,4}){2,4}(?![\w])")
_DIGITS = re.compile(r"\d[ -]?\d[ -]?\d[ -]?\d[ -]?\d")
_SECRET_HINT = re.compile(r"(?i)pass|pin|key")
_PASSWORD = re.compile(
    r"(?i)\b(pass(?:word|phrase|code)|pin(?: code)?|api key|secret key)(\s+(?:is|was)\s+|\s*[:=]\s*)(\S+)"
)


def remove_secrets(text: str) -> str:
    """Credentials and card numbers out, whoever they belong to."""
    masked = redact(text)
    if _SECRET_HINT.search(masked):
        masked = _PASSWORD.sub(r"\1\2[secret]", masked)
    if not _DIGITS.search(masked):
        return masked
    return _CARD.sub(lambda found: "[card]" if _is_card(found[0]) else found[0], masked)


def remove_contacts(text: str) -> str:
    """E-mail addresses and telephone numbers out: for what is stored about somebody else."""
    cleared = _EMAIL.sub("[email]", text)
    return _PHONE.sub(lambda found: "[phone]" if _is_phone(found[0]) else found[0], cleared)


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


# Deciding what to write: a memory, more evidence for one that is there, or nothing.
#
# Every decision comes out as drafts, so that a mode can append them together with what it does itself, in
# one transaction. What was recalled and is said again is no new memory; what was forgotten stays forgotten.


Stored = tuple[Any, ...]
"""stream, id, witnesses, told_by, private, disclosure"""
Verdict = Literal["added", "known", "forgotten"]

_SIMILAR_READ = 5
_SIMILAR_MIN_COSINE = 0.5


@dataclass(frozen=True)
class NewMemory:
    """A memory that somebody would like to keep."""

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
    def __init__(self, store: Store, recall: RecallService) -> None:
        self._store = store
        self._recall = recall

    def plan(
        self, wanted: Sequence[NewMemory], *, by_meaning: bool = True, actor: str = "system", turn: str | None = None
    ) -> list[PlannedWrite]:
        """What storing these comes to. `near` also compares by meaning, which costs a search for each."""
        lines = self._recall.forks()
        cleaned = [_clean(new) for new in wanted]
        digests = [digest(new.text) for new in cleaned]
        there = self._with_digests(zip((new.owner for new in cleaned), digests, strict=True))
        stones = self._tombstones({new.owner for new in cleaned})
        fresh: dict[tuple[str, str, bytes], str] = {}
        planned: list[PlannedWrite] = []
        for new, told in zip(cleaned, digests, strict=True):
            if _is_forgotten(new, told, stones):
                planned.append(PlannedWrite("", "forgotten"))
                continue
            key = (new.owner, new.room, told)
            known = fresh.get(key) or _find_equivalent(new, there.get((new.owner, told), ()), lines)
            known = (
                known or self._find_known_block(new, lines) or (self._find_similar(new, lines) if by_meaning else None)
            )
            if known is not None:
                planned.append(PlannedWrite(known, "known", self._confirm(new, known, actor, turn)))
                continue
            memory_id = new.id or new_id()
            fresh[key] = memory_id
            planned.append(
                PlannedWrite(memory_id, "added", [NewEvent(new.room, _payload(new, memory_id), actor, turn=turn)])
            )
        return planned

    def _find_known_block(self, new: NewMemory, lines: StreamForks) -> str | None:
        """Several lines that are each known, as when what was recalled is handed in again, are nothing new either."""
        said = [line for line in new.text.splitlines() if line.strip()]
        if len(said) < 2:
            return None
        told = [digest(line) for line in said]
        there = self._with_digests((new.owner, each) for each in told)
        found = [_find_equivalent(new, there.get((new.owner, each), ()), lines) for each in told]
        return found[0] if all(found) else None

    def _with_digests(self, wanted: Iterable[tuple[str, bytes]]) -> dict[tuple[str, bytes], list[Stored]]:
        found: dict[tuple[str, bytes], list[Stored]] = {}
        pairs = json.dumps([(owner, told.hex()) for owner, told in wanted])
        for owner, told, *stored in self._store.query(
            "SELECT m.owner, m.digest, m.stream, m.id, m.witnesses, m.told_by, m.private, m.disclosure"
            " FROM json_each(?) j CROSS JOIN memory m WHERE m.owner = j.value->>0 AND m.digest = unhex(j.value->>1)"
            " ORDER BY m.event, m.stream",
            (pairs,),
        ):
            found.setdefault((owner, told), []).append(tuple(stored))
        return found

    def _tombstones(self, owners: set[str]) -> list[Tombstone]:
        rows = self._store.query(
            "SELECT t.owner, t.id, t.digest, t.sources, m.text FROM memory_tombstone t"
            " LEFT JOIN memory m ON m.id = t.id"
        )
        return [
            Tombstone(owner, memory_id, told, frozenset(json.loads(sources)), text or "")
            for owner, memory_id, told, sources, text in rows
            if owner in owners
        ]

    def _find_similar(self, new: NewMemory, lines: StreamForks) -> str | None:
        shelf = self._recall.index_of(new.owner)
        if shelf is None or not len(shelf):
            return None
        bare = NameMatcher([*new.witnesses, *([new.speaker] if new.speaker else [])]).remove_from(new.text)
        vector = static_embedder().embed([bare])[0]
        alike, _ = cosines(shelf, vector, np.ones(len(shelf), bool))
        for at in np.lexsort((shelf.doc, -np.round(alike, 6)))[:_SIMILAR_READ].tolist():
            if alike[at] < _SIMILAR_MIN_COSINE or shelf.ids[at] in shelf.superseded:
                continue
            stream = shelf.streams.values[int(shelf.columns["stream"][at])]
            rows = self._store.query(
                "SELECT text, witnesses, told_by, private, disclosure, speaker FROM memory WHERE stream = ? AND id = ?",
                (stream, shelf.ids[at]),
            )
            for text, witnesses, told_by, private, disclosure, speaker in rows:
                there = json.loads(witnesses)
                if (
                    speaker == new.speaker
                    and _is_equivalent(new, stream or "", there, told_by, bool(private), disclosure, lines)
                    and is_duplicate(text, new.text)
                ):
                    return str(shelf.ids[at])
        return None

    def _confirm(self, new: NewMemory, memory_id: str, actor: str, turn: str | None) -> list[NewEvent]:
        known: set[str] = set()
        for (sources,) in self._store.query("SELECT sources FROM memory WHERE id = ?", (memory_id,)):
            known.update(json.loads(sources))
        known.update(
            source for (source,) in self._store.query("SELECT source FROM memory_evidence WHERE id = ?", (memory_id,))
        )
        more = tuple(source for source in new.sources if source not in known)
        if not more:
            return []
        return [NewEvent(new.room, MemoryConfirmed(id=memory_id, owner=new.owner, sources=more), actor, turn=turn)]


def _is_forgotten(new: NewMemory, told: bytes, stones: Sequence[Tombstone]) -> bool:
    """Whether a tombstone stands for it: the same id or words, or the same turn and the same meaning."""
    return any(
        stone.owner == new.owner
        and (
            told == stone.digest
            or new.id == stone.id
            or (not stone.sources.isdisjoint(new.sources) and is_duplicate(stone.text, new.text))
        )
        for stone in stones
    )


def _find_equivalent(new: NewMemory, stored: Iterable[Stored], lines: StreamForks) -> str | None:
    for stream, memory_id, witnesses, told_by, private, disclosure in stored:
        if _is_equivalent(new, stream, json.loads(witnesses), told_by, bool(private), disclosure, lines):
            return str(memory_id)
    return None


def _is_equivalent(
    new: NewMemory,
    stream: str,
    witnesses: Sequence[str],
    told_by: str | None,
    private: bool,
    disclosure: str,
    lines: StreamForks,
) -> bool:
    """Whether a stored memory can be recalled wherever the new one could: only then is the new one not needed."""
    if new.owner not in witnesses and not told_by:
        return False
    if stream == new.room:
        heard = not private or (new.private and set(new.witnesses) <= set(witnesses))
        return heard and disclosure in (new.disclosure, "people", "open")
    if private or disclosure == "room" or lines.is_other_branch(stream, new.room):
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
        raise BadMemory("A memory needs some text; this one is empty.", "Say what is to be remembered.")
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
        wrong = error.errors()[0]
        raise BadMemory(
            f"The memory's {'.'.join(map(str, wrong['loc']))} does not fit: {wrong['msg']}.",
            "Correct it and try again.",
        ) from None
