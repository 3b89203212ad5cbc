"""Embedding in the background: a thread that works off what has no vector yet, and can say how far it is."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from coterie.base.logging import get_logger
from coterie.memory.errors import EmbedderFailed
from coterie.memory.vectors import VectorStore


@dataclass(frozen=True)
class EmbeddingStatus:
    model: str | None
    done: int
    total: int
    running: bool
    error: str | None
    """Why it stopped before it was done."""


class EmbeddingWorker:
    def __init__(self, vectors: VectorStore) -> None:
        self._vectors = vectors
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: str | None = None

    def start(self) -> None:
        """Begin, or go on after new memories or a failure. Does nothing while it is running."""
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
            get_logger(__name__).warning("embedding stopped", why=str(error))
