"""Reads what a GGUF model file says about itself: its name, its context size, its vocabulary. Not its weights."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from coterie.base.errors import ConfigError

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
