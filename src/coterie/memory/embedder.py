"""The port for embedders. `static_vectors()` is one that is always there.

An embedder turns texts into vectors of one length. It may fail; then it raises `EmbedderFailed`, and
recall goes on with what it has. Whatever it returns is checked at the door by `embed_checked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coterie.memory.errors import EmbedderFailed

Floats = NDArray[np.float32]


@runtime_checkable
class Embedder(Protocol):
    @property
    def name(self) -> str:
        """Tells models apart: vectors of different names are never compared."""
        ...

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row per text."""
        ...


def embed_checked(embedder: Embedder, texts: Sequence[str], dim: int | None = None) -> Floats:
    """Ask an embedder and refuse what cannot be its answer. `dim` is the length its other vectors have."""
    if not texts:
        return np.zeros((0, dim or 0), np.float32)
    try:
        found = np.asarray(embedder.embed(texts), np.float32)
    except EmbedderFailed:
        raise
    except Exception as error:
        raise EmbedderFailed(
            f"The embedder {embedder.name} failed: {error}.",
            "Memory goes on without it; check the embedder, then embed what is missing.",
        ) from error
    if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
        raise EmbedderFailed(
            f"The embedder {embedder.name} returned {found.shape} for {len(texts)} texts, or no numbers.",
            "It is not usable as it is; choose another embedder.",
        )
    if dim is not None and found.shape[1] != dim:
        raise EmbedderFailed(
            f"The embedder {embedder.name} returned vectors of {found.shape[1]} numbers, and before of {dim}.",
            "Its model has changed: give it a new name in the configuration, and every memory is embedded anew.",
        )
    return found
