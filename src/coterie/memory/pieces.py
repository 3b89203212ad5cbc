"""Splits words into the pieces the static vectors know: byte-pair encoding, read from the tokenizer's JSON.

The tokenizer's merges never cross a space, so a word is encoded once and remembered. That makes a plain
Python encoder as quick as a compiled one on prose, and spares the compiled one's dependencies.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

_WORD = re.compile(r"[^\W_]+")
_REMEMBERED = 200_000
_LONGEST_WORD = 64


class Pieces:
    def __init__(self, tokenizer: Path) -> None:
        model = json.loads(tokenizer.read_text(encoding="utf-8"))["model"]
        self.vocabulary: dict[str, int] = model["vocab"]
        merges = (m.split(" ", 1) if isinstance(m, str) else m for m in model["merges"])
        self._ranks = {(left, right): rank for rank, (left, right) in enumerate(merges)}
        self._known: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, limit: int = 4_096) -> list[int]:
        """The pieces of a text's words; of a very long text, of its first words."""
        found: list[int] = []
        known = self._known
        for match in _WORD.finditer(text):
            word = match[0]
            pieces = known.get(word)
            if pieces is None:
                pieces = self._encode_word(word[:_LONGEST_WORD])
                if len(known) < _REMEMBERED:
                    known[word] = pieces
            found.extend(pieces)
            if len(found) >= limit:
                return found[:limit]
        return found

    def _encode_word(self, word: str) -> tuple[int, ...]:
        parts = ["▁", *word]
        while len(parts) > 1:
            ranked = [
                (self._ranks[pair], at)
                for at, pair in enumerate(zip(parts, parts[1:], strict=False))
                if pair in self._ranks
            ]
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
