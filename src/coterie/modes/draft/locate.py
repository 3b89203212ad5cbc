"""Locate a quote in a document.

Tried in order: an exact match; one with white space, quotes and dashes normalised; one without Markdown's markup and
escapes; one across an ellipsis; and the nearest passage, if it is close enough and clearly closer than the second. This
happens once, when a change is proposed: from then on only the exact text decides.
"""

from __future__ import annotations

import functools
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import edlib

from coterie.modes.draft.diff import Span, SpanMap, TextEdit

MatchKind = Literal["exact", "normalised", "markup", "ellipsis", "fuzzy"]
"""In the order they are tried; shown with a proposal."""
_ELLIPSIS = re.compile(r"\s*[\[(]?\.{3,}[\])]?\s*")
_MIN_PART_LENGTH = 4
_MAX_ELLIPSES = 6
_MAX_GAP = 5_000
"""The most characters that an ellipsis may replace."""
_MAX_OCCURRENCES = 50
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")


@dataclass(frozen=True, slots=True)
class Match:
    span: Span
    how: MatchKind
    score: float = 1.0
    """The part of the quote that agrees, at most 1."""


@dataclass(frozen=True, slots=True)
class NoMatch:
    reason: Literal["absent", "ambiguous"]
    count: int = 0
    """The number of matches, if there are too many."""


MatchResult = Match | NoMatch


def locate(document: str, quote: str, within: Span | None = None) -> MatchResult:
    """Find a quote in a document. Of several matches, the one inside `within` is chosen."""
    if not quote.strip():
        return NoMatch("absent")
    unescaped = unescape(quote)
    result = _locate_text(document, quote, within)
    if result is None and unescaped != quote:
        result = _locate_text(document, unescaped, within)
        result = Match(result.span, "markup") if isinstance(result, Match) else result
    return (
        result
        or _locate_without_markup(document, quote, within)
        or _locate_with_ellipsis(document, quote, within)
        or _locate_nearest(document, quote, within)
    )


def _locate_text(document: str, quote: str, within: Span | None) -> MatchResult | None:
    """Exactly, or with white space, quotes and dashes normalised."""
    exact = _single_match(
        [Span(at, at + len(quote)) for at in occurrences(document, quote, limit=_MAX_OCCURRENCES)], "exact", within
    )
    if exact is not None:
        return exact
    text, wanted = normalise(document, "typography"), _normalised_quote(quote, "typography")
    spans = [
        Span(*text.to_source(at, at + len(wanted))) for at in occurrences(text.text, wanted, limit=_MAX_OCCURRENCES)
    ]
    return _single_match(spans, "normalised", within)


def _locate_without_markup(document: str, quote: str, within: Span | None) -> MatchResult | None:
    text, wanted = normalise(document, "markup"), _normalised_quote(quote, "markup")
    spans = [
        _include_markup(text, at, at + len(wanted), quote)
        for at in occurrences(text.text, wanted, limit=_MAX_OCCURRENCES)
    ]
    return _single_match(spans, "markup", within)


def _locate_with_ellipsis(document: str, quote: str, within: Span | None) -> MatchResult | None:
    splits = _split_at_ellipses(_normalised_quote(quote, "markup"))
    for parts in splits:
        match = _match_parts(document, quote, parts)
        if match is not None:
            return match
    if not splits:
        return None
    # The dots may be the document's own: then the quote matches with them.
    literal = _locate_nearest(document, quote, within)
    if isinstance(literal, Match) and _ELLIPSIS.search(document, literal.span.start, literal.span.end):
        return literal
    approximate = (_match_parts_approximately(document, quote, parts) for parts in splits)
    return next((match for match in approximate if match is not None), NoMatch("absent"))


def _locate_nearest(document: str, quote: str, within: Span | None) -> MatchResult:
    text, wanted = normalise(document, "markup"), _normalised_quote(quote, "markup")
    near = _find_nearest(text, wanted, quote)
    if near is not None and near.ambiguous and within is not None:
        near = _find_nearest(text, wanted, quote, *text.from_source(within.start, within.end))
    if near is None:
        return NoMatch("absent")
    if near.ambiguous:
        return NoMatch("ambiguous", 2)
    return Match(_include_markup(text, near.start, near.end, quote), "fuzzy", 1 - near.distance)


def _single_match(spans: Sequence[Span], how: MatchKind, within: Span | None) -> MatchResult | None:
    if len(spans) > 1 and within is not None:
        inside = [span for span in spans if within.contains(span)] or [span for span in spans if within.overlaps(span)]
        spans = inside if len(inside) == 1 else spans
    if len(spans) == 1:
        return Match(spans[0], how)
    return NoMatch("ambiguous", len(spans)) if spans else None


def occurrences(text: str, needle: str, start: int = 0, end: int | None = None, limit: int | None = None) -> list[int]:
    """The offsets of a string, overlapping ones included; none of an empty string."""
    offsets: list[int] = []
    offset = text.find(needle, start, end) if needle else -1
    while offset >= 0 and (limit is None or len(offsets) < limit):
        offsets.append(offset)
        offset = text.find(needle, offset + 1, end)
    return offsets


# --- ellipses ------------------------------------------------------------------------------------------------


def _split_at_ellipses(quote: str) -> list[list[str]]:
    """The parts of a quote between its ellipses: between all of them, or around a single one, the others being text."""
    parts = [part for part in _ELLIPSIS.split(quote) if part]
    if len(parts) < 2:
        return []
    dots = list(_ELLIPSIS.finditer(quote))
    each = [[quote[: one.start()], quote[one.end() :]] for one in dots] if 1 < len(dots) <= _MAX_ELLIPSES else []
    return [split for split in [parts, *each] if min(len(split[0]), len(split[-1])) >= _MIN_PART_LENGTH]


def _match_parts(document: str, quote: str, parts: Sequence[str]) -> MatchResult | None:
    """Match a quote with its middle left out, from the start of its first part to the end of its last."""
    text = normalise(document, "markup")
    start_by_end: dict[int, int] = {}
    for start in occurrences(text.text, parts[0], limit=_MAX_OCCURRENCES):
        end = _end_of_parts(text, start, parts)
        if end is not None:
            start_by_end[end] = start  # the last start is the nearest to this end
    if len(start_by_end) > 1:
        return NoMatch("ambiguous", len(start_by_end))
    if start_by_end:
        ((end, start),) = start_by_end.items()
        return Match(_include_markup(text, start, end, quote), "ellipsis")
    return None


def _end_of_parts(text: NormalisedText, start: int, parts: Sequence[str]) -> int | None:
    """The end of the last part, if all parts follow in order after `start`."""
    at = start + len(parts[0])
    for part in parts[1:-1]:
        found = text.text.find(part, at, at + _MAX_GAP)
        if found < 0:
            return None
        at = found + len(part)
    last = parts[-1]
    paragraph_end = _PARAGRAPH_END.search(text.source, text.ends[at - 1])
    limit = text.from_source(0, paragraph_end.start())[1] if paragraph_end else len(text.text)
    # Of several ends in the paragraph, the last one is meant: an ellipsis leaves out the middle.
    found = text.text.rfind(last, at, limit)
    if found < 0:
        found = text.text.find(last, at, at + _MAX_GAP)
    return found + len(last) if found >= 0 else None


def _match_parts_approximately(document: str, quote: str, parts: Sequence[str]) -> Match | None:
    """The same with approximate matches of the first and last part."""
    text = normalise(document, "markup")
    first = _find_nearest(text, parts[0], quote)
    if first is None or first.ambiguous:
        return None
    last = _find_nearest(text, parts[-1], quote, first.end, first.end + _MAX_GAP)
    if last is None or last.ambiguous:
        return None
    score = 1 - max(first.distance, last.distance)
    return Match(_include_markup(text, first.start, last.end, quote), "ellipsis", score)


# --- normalised text -----------------------------------------------------------------------------------------

Level = Literal["typography", "markup"]
"""`typography` normalises white space, quotes and dashes; `markup` also removes Markdown's markup, so that words quoted
from a rendered page are found in its source."""
_ASCII = {
    **dict.fromkeys("‘’‚‛′´", "'"),
    **dict.fromkeys("“”„‟″«»", '"'),
    **dict.fromkeys("‐‑‒–—―−", "-"),
    "…": "...",
}
_ZERO_WIDTH = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
_TYPOGRAPHY = rf"(?P<space>\s+)|(?P<zero_width>[{_ZERO_WIDTH}])|(?P<ascii>[{''.join(_ASCII)}]|-{{2,3}}(?!-))"
_TOKENS = {
    "typography": re.compile(_TYPOGRAPHY),
    "markup": re.compile(
        r"(?P<block>(?:(?<=\s)|\A)[-*+>#]{1,6}(?=\s))"
        r"|(?P<dropped>\\[*_`~\[\]])|\\(?P<escaped>[!-/:-@\\^{|}])"
        r"|(?P<link>\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\]\[[^\]\n]*\])"
        r"|(?P<fence>```+)|(?P<inline>[*_~]+|`{1,2}|!?\[|\])"
        f"|{_TYPOGRAPHY}"
    ),
}
_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")


@dataclass(frozen=True)
class NormalisedText:
    """A normalised text, with the position of each of its characters in the source."""

    source: str
    text: str
    starts: array[int]
    """The offset in the source at which each character begins."""
    ends: array[int]
    """The offset in the source at which it ends."""

    def to_source(self, start: int, end: int) -> tuple[int, int]:
        """Offsets in the source for offsets in the text."""
        return self.starts[start], self.ends[end - 1]

    def from_source(self, start: int, end: int) -> tuple[int, int]:
        """Offsets in the text for offsets in the source."""
        return bisect_left(self.starts, start), bisect_right(self.ends, end)


@functools.lru_cache(maxsize=64)
def normalise(source: str, level: Level) -> NormalisedText:
    parts: list[str] = []
    starts, ends = array("l"), array("l")
    position, after_space = 0, True

    def append(text: str, start: int, end: int) -> None:
        parts.append(text)
        starts.extend([start] * len(text))
        ends.extend([end] * len(text))

    def copy(start: int, end: int) -> None:
        parts.append(source[start:end])
        starts.extend(range(start, end))
        ends.extend(range(start + 1, end + 1))

    for token in _TOKENS[level].finditer(source):
        start, end = token.span()
        if position < start:
            copy(position, start)
            after_space = False
        position = end
        match token.lastgroup:
            case "space":
                if not after_space:
                    append(" ", start, end)
                    after_space = True
            case "ascii":
                append(_ASCII.get(token.group(), "-"), start, end)
                after_space = False
            case "fence":
                copy(start, end)
                after_space = False
            case "escaped":
                append(token.group("escaped"), start, end)
                after_space = False
            case _:
                pass
    if position < len(source):
        copy(position, len(source))
    return NormalisedText(source, "".join(parts), starts, ends)


def unescape(quote: str) -> str:
    """Remove backslashes before punctuation: some models escape what they quote."""
    return _ESCAPE.sub(r"\1", quote)


def _normalised_quote(quote: str, level: Level) -> str:
    return normalise(unescape(quote) if level == "markup" else quote, level).text.strip()


# --- Markdown at the edges of a match ------------------------------------------------------------------------

_OPENING = re.compile(r"(?:[*_~]+|`{1,2}(?!`)|!?\[)+\Z")
_CLOSING_MARKUP = r"[*_~]+|`{1,2}(?!`)|\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|\]\[[^\]\n]*\]|\]"
_CLOSING = re.compile(rf"(?:{_CLOSING_MARKUP})+")
_CLOSING_AFTER_SPACE = re.compile(rf"(?:[ \t]*(?:{_CLOSING_MARKUP}))+")
_BLOCK_PREFIX = re.compile(r"[ \t]*(?:[-*+>#]{1,6}[ \t]+)+")
_BULLETS = re.compile(r"^[ \t>]*[-*+][ \t]", re.MULTILINE)


def _include_markup(document: NormalisedText, start: int, end: int, quote: str) -> Span:
    """The source span of a match, with the markup at its edges that belongs to it."""
    source = document.source
    left, right = document.to_source(start, end)
    opening = _OPENING.search(source, max(0, left - 12), left)
    closing = _CLOSING.match(source, right)
    wide_left = opening.start() if opening else left
    wide_right = closing.end() if closing else right
    further = _CLOSING_AFTER_SPACE.match(source, right)
    widest_right = further.end() if further else right
    choices = [(wide_left, wide_right), (wide_left, right), (left, wide_right), (left, right)]
    # Markup after a space may also open what comes next, so it is included only if it closes everything.
    candidates = [*choices, (wide_left, widest_right), (left, widest_right)]
    left, right = next((choice for choice in candidates if _is_balanced(source[slice(*choice)])), choices[0])
    if _BLOCK_PREFIX.match(unescape(quote)):
        # The quote has its bullet or heading, so the span has it too.
        line = source.rfind("\n", 0, left) + 1
        if _BLOCK_PREFIX.fullmatch(source, line, left):
            left = line + len(source[line:left]) - len(source[line:left].lstrip(" \t"))
    return Span(left, right)


def _is_balanced(text: str) -> bool:
    text = _BULLETS.sub("", text)
    return all(text.count(mark) % 2 == 0 for mark in "*_`") and text.count("[") == text.count("]")


# --- approximate matching ------------------------------------------------------------------------------------
# edlib aligns the whole quote with any part of the document. It has 256 symbols, so rarer characters share one. A match
# must be close enough, with nothing elsewhere nearly as close: a proposal in the wrong paragraph is worse than one that
# has to be asked about.

_MAX_DISTANCE = 0.4
"""How much of a quote may be wrong, in edits per character."""
_MIN_LEAD = 0.08
"""How much worse, in edits per character, the second best match must be."""
_MIN_EXACT_WORDS = 0.4
"""The share of a quote's words that must match exactly."""
_MIN_LENGTH = 16
"""Shorter quotes are similar to too many passages."""
_MAX_LENGTH = 20_000
_MAX_COMPARISONS = 4_000_000_000
"""The product of the lengths of a quote and a document, for at most about a third of a second."""
_EXTRA_WORDS = 6
"""The most words that a quote may have left out next to its edge."""
_MAX_SNAP = 2
"""The most words by which an edge is moved to the edge of its paragraph."""
_CIGAR_STEP = re.compile(r"(\d+)([=XID])")
_PUNCTUATION = re.compile(r"[^\w\s]+")
_WORD = re.compile(r"\S+")
_BLANK_LINE = re.compile(r"\n[ \t>]*\n")
_BLOCK_EDGE = re.compile(r"\n[ \t>]*\n|\n[ \t]*(?:[-*+>]|#{1,6}|\d{1,3}[.)])[ \t]")
_SEVERAL_BLOCKS = re.compile(r"\S\s+[-*+>#]{1,6}\s")

_WordSpan = tuple[int, int]


@dataclass(frozen=True)
class _NearMatch:
    start: int
    end: int
    """Offsets in the normalised text."""
    distance: float
    """Edits per character of the quote."""
    ambiguous: bool
    """Whether another passage is about as close."""


def _find_nearest(
    document: NormalisedText, quote: str, raw_quote: str, start: int = 0, end: int | None = None
) -> _NearMatch | None:
    """The passage most similar to a normalised quote; None if none is similar enough."""
    text, wanted = _to_symbols(document.text)[start:end], _to_symbols(quote)
    if not (_MIN_LENGTH <= len(quote) <= _MAX_LENGTH and text):
        return None
    if len(wanted) * len(text) > _MAX_COMPARISONS:
        return None
    alignment = _align(wanted, text, int(_MAX_DISTANCE * len(wanted)))
    if alignment is None:
        return None
    distance, first, last, cigar = alignment
    rival_distance = distance + max(2, int(_MIN_LEAD * len(wanted)))
    ambiguous = _has_rival(wanted, text, first, last + 1, rival_distance) and not _leads_by_words(
        document, quote, start + first, start + last + 1
    )
    exact_words = _exact_words(document, quote, cigar, start + first)
    if len(exact_words) < _MIN_EXACT_WORDS * len(_word_spans(quote)):
        return None  # letters agree, but not words: one long address can outweigh a sentence
    left, right = _align_to_words(document, quote, raw_quote, exact_words)
    return _NearMatch(left, right, distance / len(wanted), ambiguous)


def _align(wanted: bytes, text: bytes, max_distance: int) -> tuple[int, int, int, str] | None:
    """The distance of the first of the best matches, its first and last offset, and its alignment.

    Only the ends are searched in the whole text: edlib would look for the start of every match, of which a text of
    repeated characters has one at each character.
    """
    best = edlib.align(wanted, text, mode="HW", task="distance", k=max_distance)
    distance: int = best["editDistance"]
    if distance < 0 or not best["locations"]:
        return None
    last = best["locations"][0][1]
    window = max(0, last + 1 - len(wanted) - distance)
    match = edlib.align(wanted, text[window : last + 1], mode="HW", task="path", k=distance)
    first = match["locations"][0][0]
    return distance, window + first, last, match["cigar"]


def _has_rival(wanted: bytes, text: bytes, start: int, end: int, distance: int) -> bool:
    """Whether a passage apart from the one from `start` to `end` is within this distance."""
    sides = (text[: start + (end - start) // 4], text[end - (end - start) // 4 :])
    return any(side and edlib.align(wanted, side, mode="HW", k=distance)["editDistance"] >= 0 for side in sides)


def _leads_by_words(document: NormalisedText, quote: str, start: int, end: int) -> bool:
    """Whether this passage has a whole word more of the quote than any other.

    Letters that agree by chance do not count here, so a quote whose distinguishing word is wrong stays ambiguous.
    """
    words, _ = _words(document.text)
    wanted = [quote[slice(*word)].lower() for word in _word_spans(quote)]
    symbols = {word: number for number, word in enumerate(dict.fromkeys(wanted), start=1)}
    if len(symbols) > 250:
        return False
    quote_symbols = bytes(symbols[word] for word in wanted)
    lowered = document.text.lower()
    text = bytes(symbols.get(lowered[first:last], 0) for first, last in words)
    left = bisect_left(words, (start, start))
    right = max(bisect_left(words, (end, end)), left + 1)
    distance = edlib.align(quote_symbols, text[max(0, left - 3) : right + 3], mode="HW")["editDistance"]
    return distance < len(wanted) and not _has_rival(quote_symbols, text, left, right, distance)


def _exact_words(document: NormalisedText, quote: str, cigar: str, start: int) -> list[tuple[int, int]]:
    """Pairs of word numbers, in the quote and in the document, of words that match exactly."""
    aligned = _aligned_characters(cigar, start)
    words, number_by_start = _words(document.text)
    exact: list[tuple[int, int]] = []
    for number, (first, last) in enumerate(_word_spans(quote)):
        at = aligned.get(first, -1)
        whole = at in number_by_start and words[number_by_start[at]][1] - at == last - first
        if whole and all(aligned.get(first + n) == at + n for n in range(last - first)):
            exact.append((number, number_by_start[at]))
    return exact


def _align_to_words(
    document: NormalisedText, quote: str, raw_quote: str, exact_words: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    """The edges of a match on words: an alignment of characters is inexact where the first or last words are wrong."""
    words, _ = _words(document.text)
    first, last = exact_words[0], exact_words[-1]
    # A match is not extended beyond its list item, unless the quote itself contains several.
    boundary = _BLANK_LINE if _SEVERAL_BLOCKS.search(raw_quote) else _BLOCK_EDGE
    wanted = [quote[slice(*word)] for word in _word_spans(quote)]
    first_word = _extend_by_words(document, words, first[1], wanted[: first[0]][::-1], -1, boundary)
    last_word = _extend_by_words(document, words, last[1], wanted[last[0] + 1 :], 1, boundary)
    return _trim_punctuation(document.text, words[first_word], words[last_word], wanted[0], wanted[-1])


def _extend_by_words(
    document: NormalisedText,
    words: Sequence[_WordSpan],
    exact: int,
    missing: Sequence[str],
    step: int,
    boundary: re.Pattern[str],
) -> int:
    """The number of the word with which a match begins (step -1) or ends (step 1), counted from an exact one.

    `missing` are the quote's words from there outward. The outermost is searched nearby; if it is not found, it was
    wrong too, and as many words are counted as are missing. Neither crosses the boundary.
    """
    if not missing:
        return exact
    expected, at, at_boundary = exact, exact, False
    candidates: list[int] = []
    for count in range(1, len(missing) + _EXTRA_WORDS + 1):
        following = at + step
        if not 0 <= following < len(words) or _are_separated(
            document, words[min(at, following)], words[max(at, following)], boundary
        ):
            at_boundary = True
            break
        at = following
        if count <= len(missing):
            expected = at
        if document.text[slice(*words[at])].lower() == missing[-1].lower():
            candidates.append(at)
    if candidates:
        return min(candidates, key=lambda number: abs(number - expected))
    # If the words at the edge are wrong, the edge of the paragraph is the better guess if it is near.
    return at if at_boundary and abs(at - expected) <= _MAX_SNAP else expected


def _are_separated(document: NormalisedText, before: _WordSpan, after: _WordSpan, boundary: re.Pattern[str]) -> bool:
    gap = document.source[document.ends[before[1] - 1] : document.starts[after[0]] + 1]
    return boundary.search(gap) is not None


def _trim_punctuation(
    text: str, first: _WordSpan, last: _WordSpan, first_wanted: str, last_wanted: str
) -> tuple[int, int]:
    """A quote may leave out the punctuation that a word of the document has at the edge."""
    left, right = text[slice(*first)], text[slice(*last)]
    before = len(left) - len(first_wanted) if _PUNCTUATION.fullmatch(left.removesuffix(first_wanted)) else 0
    after = len(right) - len(last_wanted) if _PUNCTUATION.fullmatch(right.removeprefix(last_wanted)) else 0
    return first[0] + before, last[1] - after


def _aligned_characters(cigar: str, start: int) -> dict[int, int]:
    """Offsets of the quote's matching characters → offsets in the document."""
    aligned: dict[int, int] = {}
    quote_at, at = 0, start
    for length, step in _CIGAR_STEP.findall(cigar):
        count = int(length)
        if step == "=":
            aligned.update(zip(range(quote_at, quote_at + count), range(at, at + count), strict=True))
        quote_at += count if step in "=XI" else 0
        at += count if step in "=XD" else 0
    return aligned


def _word_spans(text: str) -> list[_WordSpan]:
    return [found.span() for found in _WORD.finditer(text)]


@functools.lru_cache(maxsize=16)
def _words(text: str) -> tuple[list[_WordSpan], dict[int, int]]:
    """The spans of a text's words, and the numbers of words by their start."""
    words = _word_spans(text)
    return words, {start: number for number, (start, _) in enumerate(words)}


@functools.lru_cache(maxsize=64)
def _to_symbols(text: str) -> bytes:
    """One byte per character; all characters outside Latin-1 become the same."""
    lowered = text.lower()
    return (lowered if len(lowered) == len(text) else text).encode("latin-1", "replace")


# Anchors: passages of a document that are tracked through edits.
#
# An anchor is located once, perhaps approximately; from then on its offsets are mapped through every edit, and it is
# fresh as long as exactly its text is there. Fuzzy matching would also find passages that were really rewritten, so it
# is used only to suggest where a stale proposal could be made again.


CONTEXT_LENGTH = 64
"""The number of characters kept before and after the passage."""


@dataclass(frozen=True, slots=True)
class Anchor:
    exact: str
    prefix: str
    suffix: str
    start: int
    end: int
    """Offsets; of a stale anchor, those of the text that replaced it."""
    blob: str = ""
    """The version of the document that the offsets refer to."""
    fresh: bool = True

    @property
    def span(self) -> Span:
        return Span(self.start, self.end)


def anchor_at(document: str, span: Span, blob: str = "") -> Anchor:
    return Anchor(
        document[span.start : span.end],
        document[max(0, span.start - CONTEXT_LENGTH) : span.start],
        document[span.end : span.end + CONTEXT_LENGTH],
        span.start,
        span.end,
        blob,
    )


def move_anchors(
    anchors: Sequence[Anchor], old: str, new: str, edits: Sequence[TextEdit], blob: str = ""
) -> list[Anchor]:
    """The anchors after edits, each fresh if its exact text is still in the document."""
    spans = SpanMap(edits)
    return [_move(anchor, old, new, spans, blob) for anchor in anchors]


def find_similar(anchor: Anchor, document: str) -> MatchResult:
    """The passage most similar to a stale anchor's text."""
    return locate(
        document, anchor.exact, within=Span(max(0, anchor.start - CONTEXT_LENGTH), anchor.end + CONTEXT_LENGTH)
    )


def relocate(anchor: Anchor, document: str) -> Anchor | None:
    """The anchor, or if it is stale one for the most similar passage; None if there is none."""
    if anchor.fresh:
        return anchor
    match = find_similar(anchor, document)
    return anchor_at(document, match.span, anchor.blob) if isinstance(match, Match) else None


def _move(anchor: Anchor, old: str, new: str, spans: SpanMap, blob: str) -> Anchor:
    if anchor.fresh:
        span = spans.map_unchanged(anchor.span)
        if span is not None:
            return replace(anchor, start=span.start, end=span.end, blob=blob)
    covering = spans.map_covering(anchor.span)
    place = _find_near(anchor, new, covering)
    if place is None:
        place = _find_elsewhere(anchor, old, new)
    if place is None:
        return replace(anchor, start=covering.start, end=covering.end, blob=blob, fresh=False)
    return replace(anchor, start=place, end=place + len(anchor.exact), blob=blob, fresh=True)


def _find_near(anchor: Anchor, new: str, covering: Span) -> int | None:
    """The offset of the text in or overlapping the part that replaced it, if it is unambiguous."""
    further = len(anchor.exact) - 1
    near = occurrences(new, anchor.exact, max(0, covering.start - further), covering.end + further)
    found = [at for at in near if Span(at, at + len(anchor.exact)).overlaps(covering)]
    if len(found) > 1:
        found = [at for at in found if any(_same_context(anchor, new, at))]
    return found[0] if len(found) == 1 else None


def _find_elsewhere(anchor: Anchor, old: str, new: str) -> int | None:
    """The offset of text that was moved, or came back elsewhere.

    A copy that was in the document before does not count, unless it is the only one left and in the same context.
    """
    found = occurrences(new, anchor.exact, 0, len(new))
    if len(found) != 1:
        return None
    copies = [at for at in occurrences(old, anchor.exact, 0, len(old)) if not (anchor.fresh and at == anchor.start)]
    return found[0] if not copies or _same_context(anchor, new, found[0]) == (True, True) else None


def _same_context(anchor: Anchor, new: str, at: int) -> tuple[bool, bool]:
    """Whether the text before and after an offset is that around the anchor."""
    end = at + len(anchor.exact)
    return new[max(0, at - CONTEXT_LENGTH) : at] == anchor.prefix, new[end : end + CONTEXT_LENGTH] == anchor.suffix
