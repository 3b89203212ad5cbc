"""What a text is about: its telling words, folded, the common ones left out."""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = re.compile(r"[^\W\d_][\w'-]{2,}")
_COMMON = frozenset(
    """
    the and for are but not you all any can had her was one our out day get has him his how man new now old see two way
    who boy did its let put say she too use that with have this will your from they know want been good much some time
    very when come here just like long make many more only over such take than them well were what about after again
    could every first found house large other place right small sound still their there these thing think those
    three under water where which world would write yeah okay chat going gonna really because into then because didn't
    don't that's it's i'm you're he's she's we're they're can't won't what's there's let's isn't never ever even also
    """.split()  # noqa: SIM905 - easier to read than quoted words
)


def telling(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if word not in _COMMON:
            yield word
