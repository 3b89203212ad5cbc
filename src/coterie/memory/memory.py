"""`Memory`: the public interface of this package, on its own database file or on an open store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coterie.base.clock import Clock, SystemClock
from coterie.base.paths import open_atomic
from coterie.eventstore import NewEvent, Store
from coterie.memory.access import Viewpoint
from coterie.memory.dedupe import merge_duplicates
from coterie.memory.errors import BadMemory, NoSuchMemory
from coterie.memory.events import (
    MemoryEdited,
    MemoryForgotten,
    MemoryLinked,
    MemoryPinChanged,
    MemorySuperseded,
    MemoryUsed,
)
from coterie.memory.extraction import (
    Extraction,
    ExtractionRequest,
    ExtractionResult,
    ExtractionTurn,
    Extractor,
    Operations,
)
from coterie.memory.index.embedders import Embedder
from coterie.memory.index.search_index import check_index
from coterie.memory.index.vectors import EmbeddingWorker, VectorStore
from coterie.memory.jsonl import export_lines, import_lines
from coterie.memory.projection import MemoryProjection
from coterie.memory.ranking import FusionMode, Ranking
from coterie.memory.recall import Choose, Mode, RecalledMemory, RecallRequest, RecallService
from coterie.memory.records import MemoryRecord, Relation, all_records, latest_records
from coterie.memory.text import digest
from coterie.memory.writer import MemoryWriter, NewMemory, PlannedWrite

DEFAULT_OWNER = "me"
DEFAULT_ROOM = "room:main"
MAX_PINS = 8


class Memory:
    """Stores and recalls memories. The main methods are `add`, `recall` and `forget`.

    >>> with Memory("memory.db") as memory:
    ...     memory.add("Ana is allergic to walnuts", speaker="Ana")
    ...     memory.recall("what can Ana not eat?")
    """

    def __init__(
        self,
        location: Path | str | Store,
        *,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        ranking: Ranking | None = None,
    ) -> None:
        """`location` is a database file, created if needed, or an open store that has the `MemoryProjection`."""
        self._clock = clock or SystemClock()
        self._owns_store = not isinstance(location, Store)
        self.store = (
            location
            if isinstance(location, Store)
            else Store.open(location, projections=[MemoryProjection()], clock=self._clock)
        )
        self.vectors = VectorStore(self.store, embedder)
        self._recall = RecallService(self.store, self.vectors, ranking)
        self.writer = MemoryWriter(self.store, self._recall)
        self.extraction = Extraction(self._recall, self.writer)
        self.embedding_worker = EmbeddingWorker(self.vectors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.embedding_worker.stop()
        if self._owns_store:
            self.store.close()

    def add(self, text: str, *, owner: str = DEFAULT_OWNER, room: str = DEFAULT_ROOM, **fields: Any) -> str:
        """Store a memory. Returns its id, or the id of an equivalent memory, or "" if it was forgotten before."""
        return self.add_many([NewMemory(text, owner, room, **fields)], by_meaning=True)[0].id

    def recall(
        self,
        question: str = "",
        *,
        owner: str = DEFAULT_OWNER,
        room: str | None = None,
        present: Collection[str] = (),
        people: Collection[str] = (),
        k: int = 10,
        mode: Mode = "hybrid",
        types: Collection[str] = (),
        fuse: FusionMode = "learned",
        window: int = 0,
        history: bool = False,
        archived: bool = False,
        pinned: bool = False,
        choose: Choose | None = None,
        now: datetime | None = None,
    ) -> list[RecalledMemory]:
        """The owner's memories that fit the question, best first, with the parts of each score.

        `window` adds neighbours, `history` superseded memories, `archived` archived ones; `pinned` returns only pinned.
        `choose` is called with the `k` memories found, and returns those to keep.
        """
        view = Viewpoint.of(owner, room, present, people)
        request = RecallRequest(question, view, k, mode, types, fuse, window, history, archived, pinned, choose)
        return self._recall.recall(request, now or self._clock.now())

    def recall_as(self, view: Viewpoint, question: str, *, k: int = 10) -> list[RecalledMemory]:
        """Like `recall`, with an existing viewpoint."""
        return self._recall.recall(RecallRequest(question, view, k), self._clock.now())

    def disclosable(self, view: Viewpoint, ids: Iterable[str]) -> frozenset[str]:
        """Those of these memories that still exist and may be disclosed from this viewpoint."""
        return self._recall.disclosable(view, ids)

    def preload(self, owner: str) -> None:
        """Bring the owner's index up to date, so that the next recall is faster."""
        if (index := self._recall.index_of(owner)) is not None:
            index.positions()

    def forget(self, memory_id: str, *, actor: str = "person") -> None:
        """Remove a memory for good. A tombstone keeps equivalent memories from being stored again."""
        memory = self.get(memory_id)
        payload = MemoryForgotten(
            id=memory.id, owner=memory.owner, digest=digest(memory.text).hex(), sources=memory.sources
        )
        self.store.append_blocking([NewEvent(f"memory:{memory.owner}", payload, actor)])

    def add_many(
        self, memories: Sequence[NewMemory], *, by_meaning: bool = False, actor: str = "system"
    ) -> list[PlannedWrite]:
        """Store memories in one transaction. `by_meaning` also detects duplicates in other words."""
        writes = self.writer.plan(memories, by_meaning=by_meaning, actor=actor)
        new_events = [event for write in writes for event in write.new_events]
        if new_events:
            self.store.append_blocking(new_events)
        return writes

    def get(self, memory_id: str, room: str | None = None) -> MemoryRecord:
        """The memory with this id. In a forked chat each fork has its own copy; `room` selects one."""
        where, params = ("id = ?", (memory_id,)) if room is None else ("id = ? AND stream = ?", (memory_id, room))
        for record in all_records(self.store, where, params):
            return record
        raise NoSuchMemory(f"There is no memory {memory_id}.", "It may have been forgotten, or removed by a rewind.")

    def browse(
        self,
        *,
        owner: str | None = None,
        room: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterable[MemoryRecord]:
        """All matching memories, archived ones included, oldest first."""
        filters = [("owner", owner), ("stream", room), ("type", kind)]
        conditions = [(column, value) for column, value in filters if value is not None]
        where = " AND ".join(f"{column} = ?" for column, _ in conditions)
        for record in all_records(self.store, where, tuple(value for _, value in conditions)):
            if (since is None or record.when >= since) and (until is None or record.when < until):
                yield record

    def latest(self, *, owner: str, room: str, limit: int) -> list[MemoryRecord]:
        """The owner's newest memories of a room, newest first."""
        return latest_records(self.store, {"owner": owner, "stream": room}, limit=limit, room=room)

    def page(
        self,
        *,
        owner: str | None = None,
        room: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[MemoryRecord]:
        """A page of the matching memories, archived ones included, newest first."""
        filters = {"owner": owner, "stream": room, "type": kind}
        return latest_records(self.store, filters, since=since, until=until, limit=limit, offset=offset)

    def links(self, owner: str) -> list[tuple[str, str, str]]:
        """The owner's links as (source id, relation, target id)."""
        sql = "SELECT DISTINCT source, relation, target FROM memory_link WHERE owner = ? ORDER BY 1, 2, 3"
        return [(source, relation, target) for source, relation, target in self.store.query(sql, (owner,))]

    def edit(self, memory_id: str, *, room: str | None = None, actor: str = "person", **changes: Any) -> None:
        """Correct a memory's text, type, significance, confidence, privacy or disclosure."""
        memory = self.get(memory_id, room)
        if "text" in changes and not str(changes["text"]).strip():
            raise BadMemory("A memory needs some text; this one is empty.", "Forget it instead, if it is wrong.")
        self.store.append_blocking([NewEvent(memory.room, MemoryEdited(id=memory_id, **changes), actor)])

    def pin(self, memory_id: str, *, auto: bool = False, actor: str = "person") -> bool:
        """Pin a memory. If the limit is reached, the weakest automatic pin is removed, never one set by a person.

        Returns False if an automatic pin found no room.
        """
        memory = self.get(memory_id)
        pinned = [record for record in self.browse(owner=memory.owner) if record.pinned and record.id != memory_id]
        new_events = []
        if len({record.id for record in pinned}) >= MAX_PINS:
            weak = sorted((r for r in pinned if r.auto_pinned), key=lambda r: (r.significance, r.made, r.id))
            if not weak and auto:
                return False
            if not weak:
                raise BadMemory(f"{memory.owner} already has {MAX_PINS} pinned memories.", "Unpin one of them first.")
            new_events.append(NewEvent(weak[0].room, MemoryPinChanged(id=weak[0].id, pinned=False), actor))
        new_events.append(NewEvent(memory.room, MemoryPinChanged(id=memory_id, pinned=True, auto=auto), actor))
        self.store.append_blocking(new_events)
        return True

    def unpin(self, memory_id: str, *, actor: str = "person") -> None:
        memory = self.get(memory_id)
        self.store.append_blocking([NewEvent(memory.room, MemoryPinChanged(id=memory_id, pinned=False), actor)])

    def supersede(self, memory_id: str, by: str, *, actor: str = "system") -> None:
        """Mark `by` as the current version. The old memory is kept, and recall always ranks it lower."""
        old, new = self.get(memory_id), self.get(by)
        self.store.append_blocking(
            [
                NewEvent(new.room, MemorySuperseded(id=old.id, by=new.id, owner=new.owner), actor),
                NewEvent(
                    new.room, MemoryLinked(source=new.id, relation="updates", target=old.id, owner=new.owner), actor
                ),
            ]
        )

    def link(self, source: str, relation: Relation, target: str, *, actor: str = "system") -> None:
        memory = self.get(source)
        self.get(target)
        payload = MemoryLinked(source=source, relation=relation, target=target, owner=memory.owner)
        self.store.append_blocking([NewEvent(memory.room, payload, actor)])

    def mark_used(self, ids: Sequence[str], *, owner: str = DEFAULT_OWNER, room: str = DEFAULT_ROOM) -> None:
        """Record that these memories were in a prompt, which slows their decay."""
        self.store.append_blocking([NewEvent(room, MemoryUsed(owner=owner, ids=tuple(ids)))])

    def extract(
        self,
        turns: Sequence[ExtractionTurn],
        extractor: Extractor,
        *,
        owner: str = DEFAULT_OWNER,
        room: str = DEFAULT_ROOM,
        witnesses: Sequence[str] = (),
        **setting: Any,
    ) -> ExtractionResult:
        """Extract facts from turns with a model. Its proposals are checked before they are stored."""
        request = self.prepare_extraction(turns, owner=owner, room=room, witnesses=witnesses, **setting)
        return self.store_extraction(request, extractor(request))

    def prepare_extraction(
        self,
        turns: Sequence[ExtractionTurn],
        *,
        owner: str = DEFAULT_OWNER,
        room: str = DEFAULT_ROOM,
        witnesses: Sequence[str] = (),
        **setting: Any,
    ) -> ExtractionRequest:
        """The first half of `extract`, for callers that await a model."""
        present = tuple(witnesses) or (owner, *(turn.speaker for turn in turns))
        return self.extraction.prepare(
            turns, owner=owner, room=room, witnesses=present, now=self._clock.now(), **setting
        )

    def store_extraction(self, request: ExtractionRequest, proposed: Operations) -> ExtractionResult:
        """The second half of `extract`: check what was proposed and store what passes."""
        result = self.extraction.plan(request, proposed)
        if result.new_events:
            self.store.append_blocking(result.new_events)
        return result

    def maintain(self) -> int:
        """Merge duplicates and return how many there were. It can be repeated at any time."""
        return merge_duplicates(self.store, self._recall)

    def export_jsonl(self, file: Path | str, *, owner: str | None = None, view: Viewpoint | None = None) -> int:
        """Write memories as JSON Lines and return their number. With a viewpoint, only memories it may recall."""
        count = -1
        with open_atomic(Path(file)) as out:
            for line in export_lines(self.store, owner, view):
                out.write(f"{line}\n".encode())
                count += 1
        return count

    def import_jsonl(self, file: Path | str, *, owner: str | None = None, room: str | None = None) -> int:
        """Import an export and return how many memories were new."""
        with Path(file).open(encoding="utf-8") as lines:
            return import_lines(self.store, self.writer, lines, owner=owner, room=room)

    def use_embedder(self, embedder: Embedder | None) -> None:
        """Change the embedder. Until its vectors are complete, recall uses the static vectors only."""
        self.embedding_worker.stop()
        self.vectors = VectorStore(self.store, embedder)
        self._recall.vectors = self.vectors
        self.embedding_worker = EmbeddingWorker(self.vectors)
        self.embedding_worker.start()

    def verify(self) -> list[str]:
        """The problems of the index, as sentences; empty if there are none."""
        return check_index(self.store)

    def count(self, owner: str | None = None) -> int:
        """How many memories are in the index."""
        sql = "SELECT coalesce(sum(docs), 0) FROM memory_owner" + (" WHERE owner = ?" if owner else "")
        return int(self.store.query(sql, (owner,) if owner else ())[0][0])
