"""How much a card may be. Cards come from strangers, so every size is bounded before memory is spent on it.

The bounds are far above any card people make: the largest known ones hold a few megabytes of text.
"""

from __future__ import annotations

MB = 1_000_000

FILE_BYTES = 100 * MB
"""A file of this size or more is refused."""

JSON_BYTES = 32 * MB
"""The text of one card, lorebook or chat line."""

JSON_MARKS = 1_000_000
"""Commas and opening brackets in a JSON text: each may become an object of some sixty bytes."""

JSON_DEPTH = 100
"""Levels of nesting."""

PNG_CHUNKS = 50_000
"""Chunks in a picture; a picture of 20 MB has about 2,500."""

ZIP_ENTRIES = 10_000
"""Files in a CHARX."""

ZIP_ENTRY_BYTES = 64 * MB
"""One file in a CHARX, unpacked."""

ZIP_TOTAL_BYTES = 256 * MB
"""All files in a CHARX, unpacked."""

ZIP_RATIO = 100
"""Unpacked bytes for each byte of the CHARX, above what its card's text may take."""

CHAT_MESSAGES = 200_000
"""Lines in a chat file."""
