"""Vectors of a chosen embedder, in addition to the static ones. They are computed in the background.

Storing a memory never waits for an embedder. Documents without a vector of the current model are pending;
`embed_pending` embeds them in batches. Until an owner's vectors are nearly complete, recall ranks without them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from coterie.base.logging import get_logger
from coterie.base.supervisor import describe
from coterie.eventstore import Rows, Store
from coterie.memory.errors import EmbedderFailed
from coterie.memory.index.embedders import GRID, Embedder, embed_checked, quantize
from coterie.memory.index.owner_index import OwnerIndex
from coterie.memory.index.search_index import name_matcher

Floats32 = NDArray[np.float32]
Progress = Callable[[int, int], None]

_BATCH = 64
_MIN_COVERAGE = 0.95
_CACHED_QUESTIONS = 256

_PENDING = """
    SELECT d.doc, m.text, m.speaker, m.witnesses FROM memory_doc d JOIN memory m ON m.stream = d.stream AND m.id = d.id
    WHERE NOT EXISTS (SELECT 1 FROM memory_vector v WHERE v.doc = d.doc AND v.model = ?) AND d.doc > ?
    ORDER BY d.doc LIMIT ?
"""


@dataclass
class _CachedMatrix:
    docs: NDArray[np.int64]
    matrix: Floats32
    stored: int


class VectorStore:
    """The stored vectors of the current embedder, and similarities with them."""

    def __init__(self, store: Store, embedder: Embedder | None = None) -> None:
        self._store = store
        self.embedder = embedder
        self._cached: dict[str, _CachedMatrix] = {}
        self._questions: dict[str, Floats32] = {}
        self._lock = threading.Lock()
        self._made = 0

    def embed_question(self, text: str) -> Floats32 | None:
        """The question's vector; None if there is no embedder or it fails, in which case recall goes on without."""
        if self.embedder is None:
            return None
        if (cached := self._questions.get(text)) is not None:
            return cached
        try:
            vector: Floats32 = quantize(embed_checked(self.embedder, [text], self._dim()))[0]
        except EmbedderFailed as error:
            get_logger(__name__).warning("embedder_failed", error=str(error))
            return None
        if len(self._questions) >= _CACHED_QUESTIONS:
            self._questions.clear()
        self._questions[text] = vector
        return vector

    def similarities(self, index: OwnerIndex, vector: Floats32) -> NDArray[np.float64] | None:
        """The cosine to each memory of the index, or None while too many have no vector yet."""
        assert self.embedder is not None  # noqa: S101  the vector was made by it
        cached = self._matrix(index, self.embedder.name, len(vector))
        if cached.stored < _MIN_COVERAGE * len(index):
            return None
        return np.round((cached.matrix @ vector).astype(np.float64) / GRID**2, 6)

    def pending(self) -> tuple[int, int]:
        """The number of documents without a vector of the current model, and of all documents."""
        if self.embedder is None:
            return (0, 0)
        ((total, done),) = self._store.query(
            "SELECT (SELECT count(*) FROM memory_doc), (SELECT count(*) FROM memory_vector WHERE model = ?)",
            (self.embedder.name,),
        )
        return (total - done, total)

    def embed_pending(self, progress: Progress | None = None, stop: threading.Event | None = None) -> int:
        """Embed pending documents, then delete vectors of other models. Returns how many were embedded."""
        embedder = self.embedder
        if embedder is None:
            return 0
        embedded, after = 0, 0
        missing, total = self.pending()
        while not (stop and stop.is_set()):
            rows = self._store.query(_PENDING, (embedder.name, after, _BATCH))
            if not rows:
                self._store.transact(lambda tables: _delete_other_models(tables, embedder.name))
                break
            texts = [name_matcher(speaker, witnesses).remove_from(text) for _, text, speaker, witnesses in rows]
            vectors = quantize(embed_checked(embedder, texts, self._dim())).astype(np.float16)
            new_vectors = [(row[0], embedder.name, vector.tobytes()) for row, vector in zip(rows, vectors, strict=True)]
            self._store.transact(partial(_store_vectors, vectors=new_vectors))
            after = rows[-1][0]
            embedded += len(rows)
            self._made += len(rows)
            if progress:
                progress(min(total - missing + embedded, total), total)
        return embedded

    def _dim(self) -> int | None:
        name = self.embedder.name if self.embedder else ""
        rows = self._store.query("SELECT length(vector) FROM memory_vector WHERE model = ? LIMIT 1", (name,))
        return rows[0][0] // 2 if rows else None

    def _matrix(self, index: OwnerIndex, model: str, dim: int) -> _CachedMatrix:
        with self._lock:
            cached = self._cached.get(index.owner)
            complete = cached is not None and cached.stored == len(index) and np.array_equal(cached.docs, index.doc)
            if cached is not None and complete and cached.matrix.shape[1] == dim:
                return cached
            rows = self._store.query(
                "SELECT v.doc, v.vector FROM memory_doc d JOIN memory_vector v ON v.doc = d.doc AND v.model = ?"
                " WHERE d.owner = ?",
                (model, index.number),
            )
            matrix = np.zeros((len(index), dim), np.float32)
            vectors = {doc: vector for doc, vector in rows if len(vector) == 2 * dim}
            stored = 0
            for position, doc in enumerate(index.doc.tolist()):
                if (vector := vectors.get(doc)) is not None:
                    matrix[position] = np.frombuffer(vector, np.float16)
                    stored += 1
            cached = self._cached[index.owner] = _CachedMatrix(index.doc, matrix, stored)
            return cached


def _store_vectors(tables: Rows, vectors: list[tuple[int, str, bytes]]) -> None:
    # A document may have been deleted while its vector was computed.
    for doc, model, vector in vectors:
        tables.run(
            "INSERT OR REPLACE INTO memory_vector SELECT ?1, ?2, ?3 WHERE EXISTS"
            " (SELECT 1 FROM memory_doc WHERE doc = ?1)",
            (doc, model, vector),
        )


def _delete_other_models(tables: Rows, model: str) -> None:
    tables.run("DELETE FROM memory_vector WHERE model <> ?", (model,))


@dataclass(frozen=True)
class EmbeddingStatus:
    """The progress of embedding."""

    model: str | None
    done: int
    total: int
    running: bool
    error: str | None
    """Why it stopped early."""


class EmbeddingWorker:
    """Embeds pending documents in a background thread."""

    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: str | None = None

    def start(self) -> None:
        """Start the thread, unless it is running; again after new memories or a failure."""
        if self._vectors.embedder is None or (self._thread is not None and self._thread.is_alive()):
            return
        self._stop.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name="memory-embedding", daemon=True)
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def stop(self) -> None:
        self._stop.set()
        self.wait()

    def status(self) -> EmbeddingStatus:
        embedder = self._vectors.embedder
        missing, total = self._vectors.pending()
        running = self._thread is not None and self._thread.is_alive()
        return EmbeddingStatus(embedder.name if embedder else None, total - missing, total, running, self._error)

    def _run(self) -> None:
        try:
            self._vectors.embed_pending(stop=self._stop)
        except EmbedderFailed as error:
            self._error = str(error)
            get_logger(__name__).warning("embedding_stopped", error=str(error))
        except Exception as error:
            self._error = f"{describe(error)[0]}."
            get_logger(__name__).exception("embedding_stopped")
