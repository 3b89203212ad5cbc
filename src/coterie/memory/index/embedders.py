"""The `Embedder` protocol, and `StaticEmbedder`, the built-in one that needs neither a network nor a neural net."""

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

Floats = NDArray[np.float32]
Ids = NDArray[np.uint16]

DIM = 256
GRID = 2_048
_FIRST_MERGED = 259
_COMMON_SHARE = 0.5
_BATCH_PIECES = 8_192

_WORD = re.compile(r"[^\W_]+")
_CACHE_SIZE = 200_000
_MAX_WORD_LENGTH = 64


class _PieceCache(dict[str, tuple[int, ...]]):
    """The pieces of each word, encoded on first use."""

    def __init__(self, encode: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._encode = encode

    def __missing__(self, word: str) -> tuple[int, ...]:
        pieces = self._encode(word)
        if len(self) < _CACHE_SIZE:
            self[word] = pieces
        return pieces


class WordPieces:
    """A byte-pair encoder that reads the tokenizer's JSON file.

    Its merges never cross a space, so words can be cached, which makes it as fast on prose as a compiled encoder.
    """

    def __init__(self, tokenizer: Path) -> None:
        model = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]
        self.vocabulary: dict[str, int] = model["vocab"]
        merges = (m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"])
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._cache = _PieceCache(self._encode_word)

    def encode(self, text: str, limit: int = 4_096) -> list[int]:
        """The pieces of a text's words, at most `limit`."""
        cache = self._cache
        # A word has at least one piece, so more words than the limit are never needed.
        words = _WORD.findall(text[: 16 * limit])[:limit]
        return list(chain.from_iterable([cache[word] for word in words]))[:limit]

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


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors of one length. On failure it raises `EmbedderFailed`, and recall goes on without it."""

    @property
    def name(self) -> str:
        """The model's name. Vectors of different names are never compared."""
        ...

    def embed(self, texts: Sequence[str]) -> Floats:
        """One row per text."""
        ...


def embed_checked(embedder: Embedder, texts: Sequence[str], dim: int | None = None) -> Floats:
    """Embed texts and validate the result. `dim` is the length of the embedder's existing vectors."""
    if not texts:
        return np.zeros((0, dim or 0), np.float32)
    try:
        found = np.asarray(embedder.embed(texts), np.float32)
    except EmbedderFailed:
        raise
    except Exception as error:
        raise EmbedderFailed(
            f"The embedder {embedder.name} failed: {error}.",
            "Memory works without it; check the embedder, then embed the missing memories.",
        ) from error
    if found.ndim != 2 or len(found) != len(texts) or not np.isfinite(found).all():
        raise EmbedderFailed(
            f"The embedder {embedder.name} returned {found.shape} for {len(texts)} texts, or invalid numbers.",
            "Choose another embedder.",
        )
    if dim is not None and found.shape[1] != dim:
        raise EmbedderFailed(
            f"The embedder {embedder.name} returned vectors of length {found.shape[1]}, but earlier ones have {dim}.",
            "Its model has changed: give it a new name in the configuration, and all memories are embedded again.",
        )
    return found


def quantize(vectors: NDArray[np.floating]) -> Floats:
    """Vectors of unit length in integer steps of 1/GRID (a zero vector stays zero).

    float32 adds such numbers exactly in any order, so a query is ranked the same on every machine.
    """
    exact = vectors.astype(np.float64)
    lengths = np.sqrt((exact * exact).sum(-1, keepdims=True))
    rounded: Floats = np.rint(exact / np.maximum(lengths, 1e-12) * GRID).astype(np.float32)
    return rounded


class StaticEmbedder:
    """One fixed vector per word piece, from the package `wordllama`.

    A text's vector is the mean of its pieces' vectors, weighted by rarity, minus the common direction. A piece's rarity
    comes from its number: pieces are numbered in the order of their merges, which is by frequency.
    """

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
        for row, ids in enumerate(rows):
            by_length.setdefault(len(ids), []).append(row)
        by_length.pop(0, None)
        for length, same_length in by_length.items():
            step = max(1, _BATCH_PIECES // length)
            for start in range(0, len(same_length), step):
                batch = same_length[start : start + step]
                # Texts of one length are added piece after piece: the same float32 sums on every machine.
                ids = np.array([rows[row] for row in batch])
                sums = self._weighted[ids[:, 0]]
                for piece in range(1, length):
                    sums += self._weighted[ids[:, piece]]
                exact = sums.astype(np.float64)
                size = np.sqrt((exact * exact).sum(1, keepdims=True))
                centred = np.where(size > 0, exact / np.maximum(size, 1e-12) - self._common, 0.0)
                out[batch] = quantize(centred)
        return out

    def unit_rows(self, ids: NDArray[np.integer]) -> Floats:
        """The quantized vectors of single pieces."""
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
        # Rounded, because the order in which a machine adds 32,000 rows affects the last digits.
        common: NDArray[np.float64] = np.round(
            mean.astype(np.float64) / np.sqrt((mean * mean).sum()) * _COMMON_SHARE, 4
        )
        return common


def _rarity(vocabulary: dict[str, int]) -> NDArray[np.float64]:
    """A weight per piece: the log of its merge rank, the same for `The` and `the`; 0 for bytes and punctuation."""
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
    """The single matrix in the file, memory-mapped, so that unused pages are not read."""
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
    """The embedder with the installed package's vectors. The package is not imported; only its data files are read."""
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


def text_similarity(text: str, others: Sequence[str]) -> list[float]:
    """The cosine similarity of a text with each of the others, by the static vectors."""
    first, *rest = static_embedder().embed([text, *others]).astype(np.float64)
    size = np.linalg.norm(first)
    return [float(first @ vector / max(size * np.linalg.norm(vector), 1e-9)) for vector in rest]
