"""Portraits: the picture that a character's card came with, for whoever shows the character.

Only what begins like a picture is one, of the type it begins as: a card may carry anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coterie.cast.cards import import_card
from coterie.cast.errors import CardError

_KINDS = ("png", "charx")


@dataclass(frozen=True)
class Portrait:
    data: bytes
    media_type: str
    version: int
    """Another picture has another."""


def read_portrait(workspace: Path) -> Portrait | None:
    """The picture in the card that a character's workspace holds."""
    for kind in _KINDS:
        file = workspace / f"card.{kind}"
        try:
            changed = file.stat().st_mtime_ns
        except OSError:
            continue
        if (found := _picture(file, changed)) is not None:
            return found
    return None


@lru_cache(maxsize=32)
def _picture(file: Path, changed: int) -> Portrait | None:
    try:
        card = import_card(file.read_bytes(), file.name).card
    except (OSError, CardError):
        return None
    for data in (card.picture, card.main_icon):
        if data is not None and (kind := _media_type(data)):
            return Portrait(data, kind, changed)
    return None


def _media_type(data: bytes) -> str:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""
