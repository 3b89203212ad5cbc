"""Mem0 as the store of personas' memories, with the scope and the metadata of the built-in one.

Mem0 keeps texts, vectors and metadata in a folder on this machine. It calls no model of its own: facts are extracted
and compared here (`infer=False`), and vectors are those of Coterie's embedder.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from pathlib import Path
from typing import Any

from coterie.base.clock import from_micros
from coterie.base.errors import MissingExtra
from coterie.memory import (
    Embedder,
    ExtractionRequest,
    ExtractionTurn,
    MemoryRecord,
    Operation,
    Operations,
    Viewpoint,
    operation_problem,
    static_embedder,
    text_similarity,
    text_with_subject,
)
from coterie.modes.crowd.memory.stores import StoredMemory

_COLLECTION = "personas"
_NEIGHBOURS = 8
_MAX_LISTED = 1_000
_SAME = 0.93
"""Texts that are at least this similar are the same memory."""
_UNKNOWN_TIME = from_micros(0)
_NOT_IN_ID = re.compile(r"[^\w.:-]+")


class _Embeddings:
    """Coterie's embedder behind the interface of Mem0's."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return [float(value) for value in self._embedder.embed([text])[0]]

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [[float(value) for value in vector] for vector in self._embedder.embed(texts)]


def open_mem0(folder: Path, embedder: Embedder | None = None) -> Any:
    """Open Mem0 in a folder. Raises `MissingExtra` without `coterie[mem0]`."""
    os.environ.setdefault("MEM0_TELEMETRY", "False")
    os.environ.setdefault("MEM0_DIR", str(folder))
    try:
        from mem0 import Memory
        from mem0.configs.base import MemoryConfig  # noqa: F401 - the version that this store is written for
    except ImportError:
        raise MissingExtra("mem0", "Mem0 as the memory of personas") from None
    chosen = embedder or static_embedder()
    vectors = _Embeddings(chosen)
    size = len(vectors.embed("size"))
    folder.mkdir(parents=True, exist_ok=True)
    # A model is configured but never called; without a key Mem0 does not start.
    opened = Memory.from_config(
        {
            "llm": {"provider": "openai", "config": {"api_key": "unused"}},
            "embedder": {"provider": "openai", "config": {"api_key": "unused", "embedding_dims": size}},
            "vector_store": {
                "provider": "qdrant",
                "config": {
                    "path": str(folder / "vectors"),
                    "on_disk": True,
                    "collection_name": _COLLECTION,
                    "embedding_model_dims": size,
                },
            },
            "history_db_path": str(folder / "history.db"),
        }
    )
    opened.embedding_model = vectors
    return opened


class Mem0Store:
    def __init__(self, folder: Path, embedder: Embedder | None = None) -> None:
        self._folder = folder
        self._embedder = embedder
        self._opened: Any = None
        self._lock = threading.Lock()

    @property
    def _mem0(self) -> Any:
        if self._opened is None:
            self._opened = open_mem0(self._folder, self._embedder)
        return self._opened

    def prepare(self, turn: ExtractionTurn, owner: str, room: str) -> ExtractionRequest:
        known = [_record(each, owner, room) for each in self._search(owner, room, turn.text, _NEIGHBOURS)]
        return ExtractionRequest(owner, room, (turn,), tuple(known), (owner, turn.speaker))

    def store(self, request: ExtractionRequest, proposed: Operations) -> int:
        known = {memory.id: memory for memory in request.known}
        added = 0
        for operation in proposed.operations:
            evidence = [turn for turn in request.turns if turn.id in operation.evidence]
            if operation_problem(operation, evidence, known):
                continue
            if operation.op == "NOOP":
                self._add_evidence(self._get(operation.target or ""), evidence)
                continue
            text = text_with_subject(operation.text.strip(), evidence[0].speaker, operation.about)
            same = self._same(request, text) if operation.op == "ADD" else None
            if same is not None:
                self._add_evidence(same, evidence)
                continue
            if operation.op != "ADD" and operation.target is not None:
                self.forget(operation.target)
            self._add(request, operation, text, evidence)
            added += 1
        return added

    def recall(self, view: Viewpoint, question: str, k: int) -> list[StoredMemory]:
        if view.room is None:
            return []
        return self._search(view.owner, view.room, question, k)

    def all(self, owner: str, room: str) -> list[StoredMemory]:
        with self._lock:
            found = self._mem0.get_all(filters=_scope(owner, room), top_k=_MAX_LISTED)
        return [_stored(row) for row in found["results"]]

    def forget(self, memory_id: str) -> None:
        with self._lock:
            self._mem0.delete(memory_id)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _search(self, owner: str, room: str, question: str, k: int) -> list[StoredMemory]:
        if not question.strip():
            return []
        with self._lock:
            found = self._mem0.search(question, filters=_scope(owner, room), top_k=k, threshold=0.0)
        return [_stored(row) for row in found["results"]]

    def _get(self, memory_id: str) -> StoredMemory:
        with self._lock:
            return _stored(self._mem0.get(memory_id))

    def _same(self, request: ExtractionRequest, text: str) -> StoredMemory | None:
        near = self._search(request.owner, request.room, text, _NEIGHBOURS)
        scores = text_similarity(text, [each.text for each in near]) if near else []
        return next((each for each, score in zip(near, scores, strict=True) if score >= _SAME), None)

    def _add(self, request: ExtractionRequest, operation: Operation, text: str, evidence: list[ExtractionTurn]) -> None:
        about = dict.fromkeys([evidence[0].speaker, *operation.about])
        metadata = {
            "type": operation.type,
            "about": list(about),
            "sources": [turn.id for turn in evidence],
            "confidence": operation.confidence,
            "owner": request.owner,
            "room": request.room,
        }
        with self._lock:
            self._mem0.add(text, **_scope(request.owner, request.room), infer=False, metadata=metadata)

    def _add_evidence(self, memory: StoredMemory, evidence: list[ExtractionTurn]) -> None:
        sources = list(dict.fromkeys([*memory.sources, *(turn.id for turn in evidence)]))
        with self._lock:
            self._mem0.update(memory.id, memory.text, metadata={"sources": sources})


def _scope(owner: str, room: str) -> dict[str, str]:
    return {"agent_id": _identifier(owner), "run_id": _identifier(room)}


def _identifier(name: str) -> str:
    """Mem0 accepts no spaces in ids. Names that differ give ids that differ."""
    slug = _NOT_IN_ID.sub("_", name)
    return slug if slug == name else f"{slug}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _stored(row: dict[str, Any]) -> StoredMemory:
    metadata = row.get("metadata") or {}
    return StoredMemory(
        id=str(row["id"]),
        text=str(row["memory"]),
        type=str(metadata.get("type", "fact")),
        about=tuple(metadata.get("about", ())),
        sources=tuple(metadata.get("sources", ())),
        confidence=float(metadata.get("confidence", 0.0)),
        score=float(row.get("score") or 0.0),
    )


def _record(memory: StoredMemory, owner: str, room: str) -> MemoryRecord:
    """A memory as extraction shows it to a model."""
    return MemoryRecord(
        id=memory.id,
        owner=owner,
        room=room,
        text=memory.text,
        type=memory.type,
        scene=None,
        speaker=None,
        told_by=None,
        witnesses=(owner,),
        about=memory.about,
        sources=memory.sources,
        happened=None,
        made=_UNKNOWN_TIME,
        significance=0,
        confidence=memory.confidence,
        reliability=1.0,
        pinned=False,
        auto_pinned=False,
        private=False,
        disclosure="room",
    )
