"""What a text is about: its telling words, folded, the common ones left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

from coterie.memory.words import STOP_WORDS

_WORD = re.compile(r"[^\W\d_][\w'-]{2,}")
_COMMON_IN_CHAT = frozenset(
    """
    one day get man new now old see two way boy put say use know want good much time come just like long make many
    take well every first found house large place right small sound still thing think three water world write yeah
    okay chat going gonna really never ever even also
    """.split()  # noqa: SIM905 - easier to read than quoted words
)


def chat_keywords(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if word.partition("'")[0] not in STOP_WORDS and word not in _COMMON_IN_CHAT:
            yield word
