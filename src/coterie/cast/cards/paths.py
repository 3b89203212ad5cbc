"""Paths inside a card's file. They are names to look things up by and never places on a disk; even so, one that
would lead out of a folder is not let in, so that no later code can be led there.
"""

from __future__ import annotations

import unicodedata

CARD_FILE = "card.json"
COTERIE_FILE = "coterie.json"
PORTRAIT_FILE = "coterie/portrait.png"
RESERVED_PATHS = (CARD_FILE, COTERIE_FILE, PORTRAIT_FILE)
"""What a CHARX of ours has a use for itself."""

_MAX_PATH = 500


def is_safe_path(path: str) -> bool:
    parts = path.split("/")
    return (
        0 < len(path) <= _MAX_PATH
        and not any(part in ("", ".", "..") for part in parts)
        and "\\" not in path
        and ":" not in parts[0]
        and not any(unicodedata.category(letter) in ("Cc", "Cs") for letter in path)
    )
