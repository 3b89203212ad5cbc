"""Splits words into the pieces the static vectors know: byte-pair encoding, read from the tokenizer's JSON.

The tokenizer's merges never cross a space, so a word is encoded once and remembered. That makes a plain
Python encoder as quick as a compiled one on prose, and spares the compiled one's dependencies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path

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
