"""The one place where a quote with wrong words in it probably stands: approximate matching, with a clear lead. F6

edlib aligns the whole quote with any stretch of the document. It knows 256 symbols, so rarer characters share one. What
is found must be close enough, and nothing elsewhere nearly as close: a proposal in the wrong paragraph is worse than
one that has to be asked about. Never used to judge whether a text is still there.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from dataclasses import dataclass

import edlib

from coterie.modes.draft.edges import Word, block_edge, counted_off, words_of
from coterie.modes.draft.normal import Normal

FURTHEST = 0.4
"""How much of a quote may be wrong, in edits per character."""
LEAD = 0.08
"""How much worse, in edits per character, the second best place must be."""
SHORTEST = 16
"""Characters; anything shorter is too like too much."""
LONGEST = 20_000
_STEP = re.compile(r"(\d+)([=XID])")


@dataclass(frozen=True)
class Near:
    start: int
    end: int
    """In the text that was searched."""
    distance: float
    """Edits per character of the quote."""
    rivals: bool
    """Whether somewhere else it fits about as well."""


def nearest(document: Normal, quote: str, written: str, start: int = 0, end: int | None = None) -> Near | None:
    """The stretch of a document's text that is most like a quote, if any is like it at all.

    `quote` is bare as the text is; `written` is how it was written.
    """
    if not SHORTEST <= len(quote) <= LONGEST:
        return None
    text, wanted = _symbols(document.text)[start:end], _symbols(quote)
    most = int(FURTHEST * len(wanted))
    found = edlib.align(wanted, text, mode="HW", task="path", k=most)
    if found["editDistance"] < 0 or not found["locations"]:
        return None
    distance: int = found["editDistance"]
    first, last = found["locations"][0]
    close = distance + max(2, int(LEAD * len(wanted)))
    rivals = _elsewhere(wanted, text, first, last + 1, close) and not _ahead_by_words(
        document, quote, start + first, start + last + 1
    )
    left, right = _snapped(document, quote, written, found["cigar"], start + first, start + last + 1)
    return Near(left, right, distance / len(wanted), rivals)


def _elsewhere(wanted: bytes, text: bytes, start: int, end: int, close: int) -> bool:
    """Whether a place apart from the one that was found is as close as that."""
    sides = (text[: start + (end - start) // 4], text[end - (end - start) // 4 :])
    return any(edlib.align(wanted, side, mode="HW", k=close)["editDistance"] >= 0 for side in sides)


def _ahead_by_words(document: Normal, quote: str, start: int, end: int) -> bool:
    """Of paragraphs that are nearly twins, the one that has a whole word more of the quote is meant.

    Letters that agree by chance do not count here, so a quote whose telling word is wrong stays ambiguous.
    """
    words, _ = _words(document)
    wanted = [quote[slice(*word)].lower() for word in words_of(quote)]
    symbols = {word: number for number, word in enumerate(dict.fromkeys(wanted), start=1)}
    if len(symbols) > 250:
        return False
    spelt = bytes(symbols[word] for word in wanted)
    lowered = document.text.lower()
    text = bytes(symbols.get(lowered[first:last], 0) for first, last in words)
    left = bisect_left(words, (start, start))
    right = max(bisect_left(words, (end, end)), left + 1)
    here = edlib.align(spelt, text[max(0, left - 3) : right + 3], mode="HW")["editDistance"]
    return here < len(wanted) and not _elsewhere(spelt, text, left, right, here)


def _snapped(document: Normal, quote: str, written: str, cigar: str, start: int, end: int) -> tuple[int, int]:
    """The alignment's ends on words: those that agree are firm, those before and after them are counted off."""
    agreed = _agreeing(cigar, start)
    wanted = words_of(quote)
    words, places = _words(document)
    firm: list[tuple[int, int]] = []
    for number, (first, last) in enumerate(wanted):
        at = agreed.get(first, -1)
        whole = at in places and words[places[at]][1] - at == last - first
        if whole and all(agreed.get(first + n) == at + n for n in range(last - first)):
            firm.append((number, places[at]))
    if not firm:
        return start, end
    before, after, edge = firm[0], firm[-1], block_edge(written)
    spelt = [quote[slice(*word)] for word in wanted]
    first_word = counted_off(document, words, before[1], spelt[: before[0]][::-1], -1, edge)
    last_word = counted_off(document, words, after[1], spelt[after[0] + 1 :], 1, edge)
    return words[first_word][0], words[last_word][1]


def _agreeing(cigar: str, start: int) -> dict[int, int]:
    """Which character of the quote stands on which of the document."""
    agreed: dict[int, int] = {}
    quote_at, at = 0, start
    for length, step in _STEP.findall(cigar):
        count = int(length)
        if step == "=":
            agreed.update(zip(range(quote_at, quote_at + count), range(at, at + count), strict=True))
        quote_at += count if step in "=XI" else 0
        at += count if step in "=XD" else 0
    return agreed


@functools.lru_cache(maxsize=64)
def _symbols(text: str) -> bytes:
    """One byte per character: what does not fit in one is like everything else that does not."""
    lowered = text.lower()
    return (lowered if len(lowered) == len(text) else text).encode("latin-1", "replace")


def _words(document: Normal) -> tuple[list[Word], dict[int, int]]:
    return _words_in(document.text)


@functools.lru_cache(maxsize=16)
def _words_in(text: str) -> tuple[list[Word], dict[int, int]]:
    words = words_of(text)
    return words, {start: number for number, (start, _) in enumerate(words)}
