"""The port for embedders. `static_vectors()` is one that is always there.

An embedder turns texts into vectors of one length. It may fail; then it raises `EmbedderFailed`, and
recall goes on with what it has. Whatever it returns is checked at the door by `embed_checked`.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from coterie.memory.errors import EmbedderFailed, WeightsMissing

# Splits words into the pieces the static vectors know: byte-pair encoding, read from the tokenizer's JSON.
#
# The tokenizer's merges never cross a space, so a word is encoded once and remembered. That makes a plain
# Python encoder as quick as a compiled one on prose, and spares the compiled one's dependencies.


_WORD = re.compile(r"[^\W_]+")
_CACHE_SIZE = 200_000
_MAX_WORD_LENGTH = 64


class _PieceCache(dict[str, tuple[int, ...]]):
    """The pieces of words met before; a new word is encoded when it is first asked for."""

    def __init__(self, encode: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> tuple[int, ...]:
        pieces = self._encode(word)
        if len(self) < _CACHE_SIZE:
            self[word] = pieces
        return pieces


class WordPieces:
    def __init__(self, tokenizer: Path) -> None:
        model = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]
        self.vocabulary: dict[str, int] = model["vocab"]
        merges = (m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"])
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._known = _PieceCache(self._encode_word)

    def encode(self, text: str, limit: int = 4_096) -> list[int]:
        """The pieces of a text's words; of a very long text, of its first words."""
        known = self._known
        # A word has at least one piece, so that more words than the limit are never needed.
        words = _WORD.findall(text[: 16 * limit])[:limit]
        return list(chain.from_iterable([known[word] for word in words]))[:limit]

    def _encode_word(self, word: str) -> tuple[int, ...]:
        parts = ["▁", *word[:_MAX_WORD_LENGTH]]
        while len(parts) > 1:
            ranked = [(self._ranks[pair], at) for at, pair in enumerate(pairwise(parts)) if pair in self._ranks]
            if not ranked:
                break
            _, at = min(ranked)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        ids: list[int] = []
        for part in parts:
            index = self.vocabulary.get(part)
            if index is not None:
                ids.append(index)
            else:
                ids.extend(self.vocabulary[f"<0x{byte:02X}>"] for byte in part.encode())
        return tuple(ids)


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


# Meaning without a neural net: a vector per word piece, read straight from the wheel `wordllama`.
#
# A text's vector is the mean of its pieces' vectors, weighted by how rare they are and with the common direction
# taken out; MaxSim asks, for each piece of the question, for the nearest piece of the memory. How rare a piece is
# comes from the tokenizer itself: pieces are numbered in the order in which they were merged, most frequent
# first, so a piece's number is its rank and Zipf's law does the rest. Nothing is ever re-embedded for it.
#
# Vectors are kept as whole numbers of 1/2048: float32 then adds them exactly, in any order, so that the
# same question is ranked the same on every machine.


Ids = NDArray[np.uint16]

DIM = 256
GRID = 2_048
_FIRST_MERGED = 259
_COMMON_SHARE = 0.5
_BATCH_PIECES = 8_192


def quantize(vectors: NDArray[np.floating]) -> Floats:
    """Unit length, then whole steps of 1/GRID (a zero vector stays zero)."""
    exact = vectors.astype(np.float64)
    lengths = np.sqrt((exact * exact).sum(-1, keepdims=True))
    snapped: Floats = np.rint(exact / np.maximum(lengths, 1e-12) * GRID).astype(np.float32)
    return snapped


class StaticEmbedder:
    name = "wordllama-l2-256"
    dim = DIM

    def __init__(self, weights: Path, tokenizer: Path) -> None:
        self.wordpieces = WordPieces(tokenizer)
        self._table = _map_safetensors(weights)
        self.rarity = _rarity(self.wordpieces.vocabulary)
        self._common = self._common_direction()

    def tokens(self, text: str) -> Ids:
        return np.array(self.wordpieces.encode(text), dtype=np.uint16)

    def embed(self, texts: Sequence[str]) -> Floats:
        return self.embed_tokens([self.tokens(text) for text in texts])

    def embed_tokens(self, rows: Sequence[Ids]) -> Floats:
        out = np.zeros((len(rows), DIM), np.float32)
        by_length: dict[int, list[int]] = {}
        for place, ids in enumerate(rows):
            by_length.setdefault(len(ids), []).append(place)
        by_length.pop(0, None)
        for length, places in by_length.items():
            step = max(1, _BATCH_PIECES // length)
            for start in range(0, len(places), step):
                at = places[start : start + step]
                # Texts of one length are added piece after piece: the same float32 sums on every machine.
                ids = np.array([rows[place] for place in at])
                sums = self._weighted[ids[:, 0]]
                for piece in range(1, length):
                    sums += self._weighted[ids[:, piece]]
                exact = sums.astype(np.float64)
                size = np.sqrt((exact * exact).sum(1, keepdims=True))
                centred = np.where(size > 0, exact / np.maximum(size, 1e-12) - self._common, 0.0)
                out[at] = quantize(centred)
        return out

    def unit_rows(self, ids: NDArray[np.integer]) -> Floats:
        """The raw vectors of pieces, on the grid, for comparing piece with piece."""
        return self._units.take(ids, axis=0)

    @functools.cached_property
    def _units(self) -> Floats:
        return np.concatenate(
            [quantize(self._table[start : start + 4_096]) for start in range(0, len(self._table), 4_096)]
        )

    @functools.cached_property
    def _weighted(self) -> Floats:
        return (self._table * self.rarity[:, None].astype(np.float32)).astype(np.float32)

    def _common_direction(self) -> NDArray[np.float64]:
        ranks = np.arange(len(self.rarity))
        merged = (self.rarity > 0) & (ranks >= _FIRST_MERGED)
        often = np.where(merged, 1 / np.maximum(ranks - 200, 1), 0.0)
        mean = often.astype(np.float32) @ self._weighted
        # Rounded, so that the order in which a machine adds 32,000 rows leaves no trace.
        common: NDArray[np.float64] = np.round(
            mean.astype(np.float64) / np.sqrt((mean * mean).sum()) * _COMMON_SHARE, 4
        )
        return common


def _rarity(vocabulary: dict[str, int]) -> NDArray[np.float64]:
    """A weight per piece: log of its merge rank, the same for `The` and `the`; none for bytes and signs."""
    rarity = np.zeros(max(vocabulary.values()) + 1)
    lowest: dict[str, float] = {}
    for piece, index in vocabulary.items():
        bare = piece.replace("▁", "")
        if piece.startswith("<0x") or not any(letter.isalnum() for letter in bare):
            continue
        weight = float(np.clip(np.log(max(index - 258, 1) / 40 + 1), 0.2, 6))
        rarity[index] = weight
        lowest[piece.lower()] = min(weight, lowest.get(piece.lower(), 9.0))
    for piece, index in vocabulary.items():
        if rarity[index]:
            rarity[index] = lowest[piece.lower()]
    return rarity


def _map_safetensors(path: Path) -> NDArray[np.float16]:
    """The one matrix in the file, mapped and not copied: pages that are never asked for are never read."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    (entry,) = header.values()
    return np.memmap(
        path,
        dtype=np.float16,
        mode="r",
        offset=8 + size + entry["data_offsets"][0],
        shape=tuple(entry["shape"]),
    )


@functools.cache
def static_embedder() -> StaticEmbedder:
    """The vectors of the installed wheel. The package is not imported: only its two data files are read."""
    try:
        package = importlib.metadata.distribution("wordllama")
    except importlib.metadata.PackageNotFoundError:
        raise WeightsMissing(
            "The word vectors that memory uses offline are not installed.",
            "Install them with: pip install --no-deps wordllama",
        ) from None
    root = Path(str(package.locate_file("wordllama")))
    weights = root / "weights" / "l2_supercat_256.safetensors"
    tokenizer = root / "tokenizers" / "l2_supercat_tokenizer_config.json"
    for file in (weights, tokenizer):
        if not file.exists():
            raise WeightsMissing(
                f"The installed wordllama has no {file.name}.",
                "Install the release it came with: pip install --no-deps wordllama==0.4.0.post1",
            )
    return StaticEmbedder(weights, tokenizer)
