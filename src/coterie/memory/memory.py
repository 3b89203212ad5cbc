"""`Memory`: the whole of it behind a few calls, usable alone in a script or on a store that is already open."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coterie.base.clock import Clock, SystemClock
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
from coterie.memory.extraction import Extraction, ExtractionResult, ExtractionTurn, Extractor
from coterie.memory.index.embedders import Embedder
from coterie.memory.index.search_index import check_index
from coterie.memory.index.vectors import EmbeddingWorker, VectorStore
from coterie.memory.jsonl import export_lines, import_lines
from coterie.memory.projection import MemoryProjection
from coterie.memory.ranking import FusionMode, Ranking
from coterie.memory.recall import Mode, RecalledMemory, RecallRequest, RecallService
from coterie.memory.records import MemoryRecord, Relation, all_records, latest_records
from coterie.memory.text import digest
from coterie.memory.writer import MemoryWriter, NewMemory, PlannedWrite

DEFAULT_OWNER = "me"
DEFAULT_ROOM = "room:main"
MAX_PINS = 8


class Memory:
    """Three calls do most of it: `add`, `recall`, `forget`.

    >>> with Memory("memory.db") as memory:
    ...     memory.add("Ana is allergic to walnuts", speaker="Ana")
    ...     memory.recall("what can Ana not eat?")
    """

    def __init__(
        self,
        place: Path | str | Store,
        *,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
        ranking: Ranking | None = None,
    ) -> None:
        """On a file of its own, which is made if needed, or on an open store that folds the view `Memories`."""
        self._clock = clock or SystemClock()
        self._owns_store = not isinstance(place, Store)
        self.store = (
            place
            if isinstance(place, Store)
            else Store.open(place, projections=[MemoryProjection()], clock=self._clock)
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

    # --- the three calls -------------------------------------------------------------------------------

    def add(self, text: str, *, owner: str = DEFAULT_OWNER, room: str = DEFAULT_ROOM, **fields: Any) -> str:
        """Remember something. Returns its id; the id of what already says it; or "" if it was forgotten for good."""
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
        now: datetime | None = None,
    ) -> list[RecalledMemory]:
        """What comes to the owner's mind, best first, each with its reasons and its sources."""
        view = Viewpoint.of(owner, room, present, people)
        ask = RecallRequest(question, view, k, mode, types, fuse, window, history, archived, pinned)
        return self._recall.recall(ask, now or self._clock.now())

    def recall_as(self, view: Viewpoint, question: str, *, k: int = 10) -> list[RecalledMemory]:
        """The same for whoever has settled already who remembers, where, and before whom."""
        return self._recall.recall(RecallRequest(question, view, k), self._clock.now())

    def disclosable(self, view: Viewpoint, ids: Iterable[str]) -> frozenset[str]:
        """Of these memories, those that were not taken back since, and may be told from this viewpoint."""
        return self._recall.disclosable(view, ids)

    def preload(self, owner: str) -> None:
        """Read what is new of an owner's memories, so that the next recall need not: for whoever has time now."""
        if (shelf := self._recall.index_of(owner)) is not None:
            shelf.positions()

    def forget(self, memory_id: str, *, actor: str = "person") -> None:
        """Never recall this again, nor anything that says the same: a tombstone keeps it from coming back."""
        memory = self.get(memory_id)
        payload = MemoryForgotten(
            id=memory.id, owner=memory.owner, digest=digest(memory.text).hex(), sources=memory.sources
        )
        self.store.append_blocking([NewEvent(f"memory:{memory.owner}", payload, actor)])

    # --- more of the same ------------------------------------------------------------------------------

    def add_many(
        self, wanted: Sequence[NewMemory], *, by_meaning: bool = False, actor: str = "system"
    ) -> list[PlannedWrite]:
        """Remember many at once, in one transaction. `near` also merges what says the same in other words."""
        planned = self.writer.plan(wanted, by_meaning=by_meaning, actor=actor)
        drafts = [draft for plan in planned for draft in plan.new_events]
        if drafts:
            self.store.append_blocking(drafts)
        return planned

    def get(self, memory_id: str, room: str | None = None) -> MemoryRecord:
        """In a forked chat each line has its own: `room` says which is meant."""
        where, params = ("id = ?", (memory_id,)) if room is None else ("id = ? AND stream = ?", (memory_id, room))
        for record in all_records(self.store, where, params):
            return record
        raise NoSuchMemory(
            f"There is no memory {memory_id}.", "It may have been forgotten, or taken back with its turn."
        )

    def browse(
        self,
        *,
        owner: str | None = None,
        room: str | None = None,
        kind: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterable[MemoryRecord]:
        """For the person: everything that is kept, faded or not, oldest first."""
        wanted = [("owner", owner), ("stream", room), ("type", kind)]
        chosen = [(column, value) for column, value in wanted if value is not None]
        where = " AND ".join(f"{column} = ?" for column, _ in chosen)
        for record in all_records(self.store, where, tuple(value for _, value in chosen)):
            if (since is None or record.when >= since) and (until is None or record.when < until):
                yield record

    def latest(self, *, owner: str, room: str, limit: int) -> list[MemoryRecord]:
        """The newest memories that somebody has of a room, newest first."""
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
        """For the person: what is kept, newest first, a page at a time."""
        wanted = {"owner": owner, "stream": room, "type": kind}
        return latest_records(self.store, wanted, since=since, until=until, limit=limit, offset=offset)

    def links(self, owner: str) -> list[tuple[str, str, str]]:
        """What belongs together in somebody's mind: a memory, how it is tied, another memory."""
        sql = "SELECT DISTINCT source, relation, target FROM memory_link WHERE owner = ? ORDER BY 1, 2, 3"
        return [(source, relation, target) for source, relation, target in self.store.query(sql, (owner,))]

    def edit(self, memory_id: str, *, room: str | None = None, actor: str = "person", **changes: Any) -> None:
        """Correct a memory's text, type, significance, confidence, privacy or disclosure."""
        memory = self.get(memory_id, room)
        if "text" in changes and not str(changes["text"]).strip():
            raise BadMemory("A memory needs some text; this one is empty.", "Forget it instead, if it is wrong.")
        self.store.append_blocking([NewEvent(memory.room, MemoryEdited(id=memory_id, **changes), actor)])

    def pin(self, memory_id: str, *, auto: bool = False, actor: str = "person") -> bool:
        """Keep it always at hand. Of at most eight the weakest automatic pin makes room, a hand-made one never."""
        memory = self.get(memory_id)
        pinned = [record for record in self.browse(owner=memory.owner) if record.pinned and record.id != memory_id]
        drafts = []
        if len({record.id for record in pinned}) >= MAX_PINS:
            weak = sorted((r for r in pinned if r.auto_pinned), key=lambda r: (r.significance, r.made, r.id))
            if not weak and auto:
                return False
            if not weak:
                raise BadMemory(f"{memory.owner} already has {MAX_PINS} pinned memories.", "Unpin one of them first.")
            drafts.append(NewEvent(weak[0].room, MemoryPinChanged(id=weak[0].id, pinned=False), actor))
        drafts.append(NewEvent(memory.room, MemoryPinChanged(id=memory_id, pinned=True, auto=auto), actor))
        self.store.append_blocking(drafts)
        return True

    def unpin(self, memory_id: str, *, actor: str = "person") -> None:
        memory = self.get(memory_id)
        self.store.append_blocking([NewEvent(memory.room, MemoryPinChanged(id=memory_id, pinned=False), actor)])

    def supersede(self, memory_id: str, by: str, *, actor: str = "system") -> None:
        """`by` holds from now on. What it replaces is kept, with its place in time, and never comes before it."""
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
        """Note that these were put before a model: use keeps a memory fresh."""
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
        """Let a model find facts in turns. What it proposes is checked against the turns and what is known."""
        there = tuple(witnesses) or (owner, *(turn.speaker for turn in turns))
        request = self.extraction.prepare(
            turns, owner=owner, room=room, witnesses=there, now=self._clock.now(), **setting
        )
        outcome = self.extraction.plan(request, extractor(request))
        if outcome.new_events:
            self.store.append_blocking(outcome.new_events)
        return outcome

    def maintain(self) -> int:
        """Merge near-duplicates. Safe to run at any time and any number of times."""
        return merge_duplicates(self.store, self._recall)

    def export_jsonl(self, file: Path | str, *, owner: str | None = None, view: Viewpoint | None = None) -> int:
        """Write memories as lines of JSON. With a viewpoint, only what it may know. Returns how many."""
        count = -1
        with Path(file).open("w", encoding="utf-8") as out:
            for line in export_lines(self.store, owner, view):
                out.write(line + "\n")
                count += 1
        return count

    def import_jsonl(self, file: Path | str, *, owner: str | None = None, room: str | None = None) -> int:
        """Read an export back. Returns how many memories were new."""
        with Path(file).open(encoding="utf-8") as lines:
            return import_lines(self.store, self.writer, lines, owner=owner, room=room)

    def use_embedder(self, embedder: Embedder | None) -> None:
        """Change the embedder. Recall goes on with the offline vectors until the new ones are made."""
        self.embedding_worker.stop()
        self.vectors = VectorStore(self.store, embedder)
        self._recall.vectors = self.vectors
        self.embedding_worker = EmbeddingWorker(self.vectors)
        self.embedding_worker.start()

    def verify(self) -> list[str]:
        """What is wrong with the index, in sentences; nothing if all is well."""
        return check_index(self.store)

    def count(self, owner: str | None = None) -> int:
        """How many memories are in the index."""
        sql = "SELECT coalesce(sum(docs), 0) FROM memory_owner" + (" WHERE owner = ?" if owner else "")
        return int(self.store.query(sql, (owner,) if owner else ())[0][0])
