"""How much a card may be. Cards come from strangers, so every size is bounded before memory is spent on it.

The bounds are far above any card people make: the largest known ones hold a few megabytes of text.
"""

from __future__ import annotations

MB = 1_000_000

MAX_FILE_BYTES = 100 * MB
"""A file of this size or more is refused."""

MAX_JSON_BYTES = 32 * MB
"""The text of one card, lorebook or chat line."""

MAX_JSON_VALUES = 1_000_000
"""Commas and opening brackets in a JSON text: each may become an object of some sixty bytes."""

MAX_JSON_DEPTH = 100
"""Levels of nesting."""

MAX_PNG_CHUNKS = 50_000
"""Chunks in a picture; a picture of 20 MB has about 2,500."""

MAX_ZIP_ENTRIES = 10_000
"""Files in a CHARX."""

MAX_ZIP_ENTRY_BYTES = 64 * MB
"""One file in a CHARX, unpacked."""

MAX_ZIP_TOTAL_BYTES = 256 * MB
"""All files in a CHARX, unpacked."""

MAX_ZIP_RATIO = 100
"""Unpacked bytes of files for each byte of the CHARX …"""

ZIP_RATIO_ALLOWANCE = 10 * MB
"""… and this much more: a blank picture or a silent sound packs to nothing."""

MAX_CHAT_MESSAGES = 200_000
"""Lines in a chat file."""
