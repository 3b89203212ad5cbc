"""The exact tokenizer of a GGUF model, made from the vocabulary inside the file. Nothing is downloaded.

tiktoken does the work, with ranks of our own: in a byte-level BPE vocabulary whose merges are numbered in the order
they were learnt, a token's id is its rank. tests/real compares the result with llama.cpp's own, token by token.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.llm.gguf import read_metadata

if TYPE_CHECKING:
    from tiktoken import Encoding

_ORDINARY_TOKEN = 1

_SPLIT_PATTERNS = {
    # Digits stand alone, and the spaces before them stay together; the rest is GPT-2's way of cutting words.
    "smollm": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}|\s+(?=\p{N})| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}


@lru_cache(maxsize=2)
def load_tokenizer(weights: Path) -> Encoding | None:
    """None where the file's way of cutting words is not one we know exactly; then the estimate is used."""
    metadata = read_metadata(weights)
    split = _SPLIT_PATTERNS.get(metadata.get("tokenizer.ggml.pre", ""))
    if metadata.get("tokenizer.ggml.model") != "gpt2" or split is None:
        return None
    from tiktoken import Encoding

    byte_of = _bytes_by_letter()
    kinds = metadata["tokenizer.ggml.token_type"]
    ranks: dict[bytes, int] = {}
    special: dict[str, int] = {}
    for rank, (token, kind) in enumerate(zip(metadata["tokenizer.ggml.tokens"], kinds, strict=True)):
        if kind == _ORDINARY_TOKEN:
            ranks[bytes(byte_of[letter] for letter in token)] = rank
        else:
            special[token] = rank
    # Small vocabularies leave out bytes they never met; whoever writes one anyway must not bring the counter down.
    missing = (bytes([byte]) for byte in range(256) if bytes([byte]) not in ranks)
    ranks |= {byte: len(kinds) + place for place, byte in enumerate(missing)}
    return Encoding(weights.name, pat_str=split, mergeable_ranks=ranks, special_tokens=special)


def _bytes_by_letter() -> dict[str, int]:
    """GPT-2's alphabet: each byte as a visible letter, so that a vocabulary can be written as text."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in visible}
    hidden = (byte for byte in range(256) if byte not in visible)
    return letters | {chr(256 + place): byte for place, byte in enumerate(hidden)}
