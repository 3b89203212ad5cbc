"""The one place where a quote with wrong words in it probably stands: approximate matching, with a clear lead. F6

edlib aligns the whole quote with any stretch of the document. It knows 256 symbols, so rarer characters share one. What
is found must be close enough, and nothing elsewhere nearly as close: a proposal in the wrong paragraph is worse than
one that has to be asked about. Never used to judge whether a text is still there.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import edlib

from coterie.modes.draft.locate.normalise import NormalisedText, WordSpan, block_boundary, extend_by_words, word_spans

MAX_DISTANCE = 0.4
"""How much of a quote may be wrong, in edits per character."""
MIN_LEAD = 0.08
"""How much worse, in edits per character, the second best place must be."""
MIN_EXACT_WORDS = 0.4
"""The share of a quote's words that must stand there as they are."""
MIN_LENGTH = 16
"""Characters; anything shorter is too like too much."""
MAX_LENGTH = 20_000
_PUNCTUATION = re.compile(r"[^\w\s]+")
_STEP = re.compile(r"(\d+)([=XID])")


@dataclass(frozen=True)
class NearMatch:
    start: int
    end: int
    """In the text that was searched."""
    distance: float
    """Edits per character of the quote."""
    ambiguous: bool
    """Whether somewhere else it fits about as well."""


def find_nearest(
    document: NormalisedText, quote: str, written: str, start: int = 0, end: int | None = None
) -> NearMatch | None:
    """The stretch of a document's text that is most like a quote, if any is like it at all.

    `quote` is bare as the text is; `written` is how it was written.
    """
    text, wanted = _symbols(document.text)[start:end], _symbols(quote)
    if not (MIN_LENGTH <= len(quote) <= MAX_LENGTH and text):
        return None
    most = int(MAX_DISTANCE * len(wanted))
    found = edlib.align(wanted, text, mode="HW", task="path", k=most)
    if found["editDistance"] < 0 or not found["locations"]:
        return None
    distance: int = found["editDistance"]
    first, last = found["locations"][0]
    close = distance + max(2, int(MIN_LEAD * len(wanted)))
    rivals = _elsewhere(wanted, text, first, last + 1, close) and not _ahead_by_words(
        document, quote, start + first, start + last + 1
    )
    firm = _firm(document, quote, found["cigar"], start + first)
    if len(firm) < MIN_EXACT_WORDS * len(word_spans(quote)):
        return None  # letters agree, but not words: one long address can outweigh a sentence
    left, right = _snapped(document, quote, written, firm)
    return NearMatch(left, right, distance / len(wanted), rivals)


def _elsewhere(wanted: bytes, text: bytes, start: int, end: int, close: int) -> bool:
    """Whether a place apart from the one that was found is as close as that."""
    sides = (text[: start + (end - start) // 4], text[end - (end - start) // 4 :])
    return any(side and edlib.align(wanted, side, mode="HW", k=close)["editDistance"] >= 0 for side in sides)


def _ahead_by_words(document: NormalisedText, quote: str, start: int, end: int) -> bool:
    """Of paragraphs that are nearly twins, the one that has a whole word more of the quote is meant.

    Letters that agree by chance do not count here, so a quote whose telling word is wrong stays ambiguous.
    """
    words, _ = _words(document)
    wanted = [quote[slice(*word)].lower() for word in word_spans(quote)]
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


def _firm(document: NormalisedText, quote: str, cigar: str, start: int) -> list[tuple[int, int]]:
    """Words of the quote that agree with a word of the document: which is which."""
    agreed = _agreeing(cigar, start)
    words, places = _words(document)
    firm: list[tuple[int, int]] = []
    for number, (first, last) in enumerate(word_spans(quote)):
        at = agreed.get(first, -1)
        whole = at in places and words[places[at]][1] - at == last - first
        if whole and all(agreed.get(first + n) == at + n for n in range(last - first)):
            firm.append((number, places[at]))
    return firm


def _snapped(document: NormalisedText, quote: str, written: str, firm: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The alignment's ends on words: those that agree are firm, those before and after them are counted off."""
    words, _ = _words(document)
    before, after, edge = firm[0], firm[-1], block_boundary(written)
    spelt = [quote[slice(*word)] for word in word_spans(quote)]
    first_word = extend_by_words(document, words, before[1], spelt[: before[0]][::-1], -1, edge)
    last_word = extend_by_words(document, words, after[1], spelt[after[0] + 1 :], 1, edge)
    return _cut_to(document.text, words[first_word], words[last_word], spelt[0], spelt[-1])


def _cut_to(text: str, first: WordSpan, last: WordSpan, first_spelt: str, last_spelt: str) -> tuple[int, int]:
    """A quote may leave out the punctuation that a word of the document has at the edge."""
    left, right = text[slice(*first)], text[slice(*last)]
    before = len(left) - len(first_spelt) if _PUNCTUATION.fullmatch(left.removesuffix(first_spelt)) else 0
    after = len(right) - len(last_spelt) if _PUNCTUATION.fullmatch(right.removeprefix(last_spelt)) else 0
    return first[0] + before, last[1] - after


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


def _words(document: NormalisedText) -> tuple[list[WordSpan], dict[int, int]]:
    return _words_in(document.text)


@functools.lru_cache(maxsize=16)
def _words_in(text: str) -> tuple[list[WordSpan], dict[int, int]]:
    words = word_spans(text)
    return words, {start: number for number, (start, _) in enumerate(words)}
