"""Which addresses a message names, whether or not it writes `https://` before them."""

from __future__ import annotations

import re
from collections.abc import Collection

_TLD = (
    "com|net|org|io|gg|tv|ly|me|co|ru|xyz|link|live|shop|top|app|dev|de|uk|eu|fr|nl|info|biz|club|online|site|store"
    "|click|win"
)
_LINK = re.compile(rf"(?i)(?:https?://|www\.)([^\s/?#]+)|(?<![@\w.-])((?:[a-z0-9-]+\.)+(?:{_TLD}))(?![\w.-]*\w)")
LINK_HINTS = (".", "://")
"""What no link can do without."""


def hosts(text: str) -> list[str]:
    """The hosts a text links to."""
    if not any(hint in text for hint in LINK_HINTS):
        return []
    return [(found[1] or found[2]).lower().removeprefix("www.") for found in _LINK.finditer(text)]


def is_listed(host: str, allowed: Collection[str]) -> bool:
    """Whether a host is one of the allowed ones, or below one of them."""
    return any(host == domain or host.endswith(f".{domain}") for domain in allowed)
