"""Locate a quote in a document.

Tried in order: an exact match; one with white space, quotes and dashes normalised; one without Markdown's markup and
escapes; one across an ellipsis; and the nearest passage, if it is close enough and clearly closer than the second. This
happens once, when a change is proposed: from then on only the exact text decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coterie.modes.draft.diff import Span
from coterie.modes.draft.locate.fuzzy import find_nearest
from coterie.modes.draft.locate.normalise import Level, NormalisedText, include_markup, normalise, unescape

MatchKind = Literal["exact", "normalised", "markup", "ellipsis", "fuzzy"]
"""In the order they are tried; shown with a proposal."""
_ELLIPSIS = re.compile(r"\s*[\[(]?\.{3,}[\])]?\s*")
_MIN_PART_LENGTH = 4
_MAX_ELLIPSES = 6
_MAX_GAP = 5_000
"""The most characters that an ellipsis may stand for."""
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


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
    """Of several matches, the one inside `within` is chosen."""
    if not quote.strip():
        return NoMatch("absent")
    literal = unescape(quote)
    found = _locate_text(document, quote, within)
    if found is None and literal != quote:
        found = _locate_text(document, literal, within)
        found = Match(found.span, "markup") if isinstance(found, Match) else found
    return found or _locate_without_markup(document, quote, within) or _locate_approximately(document, quote, within)


def _locate_text(document: str, quote: str, within: Span | None) -> MatchResult | None:
    """Exactly, or with white space, quotes and dashes normalised."""
    exact = _single_match([Span(at, at + len(quote)) for at in _occurrences(document, quote)], "exact", within)
    if exact is not None:
        return exact
    text, wanted = normalise(document, "plain"), _normalised_quote(quote, "plain")
    spans = [Span(*text.to_source(at, at + len(wanted))) for at in text.find_all(wanted)] if wanted else []
    return _single_match(spans, "normalised", within)


def _locate_without_markup(document: str, quote: str, within: Span | None) -> MatchResult | None:
    """Without Markdown's markup."""
    text, wanted = normalise(document, "bare"), _normalised_quote(quote, "bare")
    spans = [include_markup(text, at, at + len(wanted), quote) for at in text.find_all(wanted)] if wanted else []
    return _single_match(spans, "markup", within)


def _locate_approximately(document: str, quote: str, within: Span | None) -> MatchResult:
    return _with_ellipsis(document, quote, within) or _nearest(document, quote, within)


def _with_ellipsis(document: str, quote: str, within: Span | None) -> MatchResult | None:
    splits = _splits(_normalised_quote(quote, "bare"))
    for parts in splits:
        bridged = _bridge(document, quote, parts)
        if bridged is not None:
            return bridged
    if not splits:
        return None
    # The dots may be the document's own: then the quote matches with them.
    literal = _nearest(document, quote, within)
    if isinstance(literal, Match) and _ELLIPSIS.search(document, literal.span.start, literal.span.end):
        return literal
    nearly = (_bridge_approximately(document, quote, parts) for parts in splits)
    return next((found for found in nearly if found is not None), NoMatch("absent"))


def _splits(quote: str) -> list[list[str]]:
    """The parts of a quote between its ellipses: between all of them, or around a single one, the others being text."""
    parts = [part for part in _ELLIPSIS.split(quote) if part]
    if len(parts) < 2:
        return []
    dots = list(_ELLIPSIS.finditer(quote))
    each = [[quote[: one.start()], quote[one.end() :]] for one in dots] if 1 < len(dots) <= _MAX_ELLIPSES else []
    return [split for split in [parts, *each] if min(len(split[0]), len(split[-1])) >= _MIN_PART_LENGTH]


def _normalised_quote(quote: str, depth: Level) -> str:
    return normalise(unescape(quote) if depth == "bare" else quote, depth).text.strip()


def _single_match(spans: Sequence[Span], how: MatchKind, within: Span | None) -> MatchResult | None:
    if len(spans) > 1 and within is not None:
        inside = [span for span in spans if within.contains(span)] or [span for span in spans if within.overlaps(span)]
        spans = inside if len(inside) == 1 else spans
    if len(spans) == 1:
        return Match(spans[0], how)
    return NoMatch("ambiguous", len(spans)) if spans else None


def _occurrences(document: str, quote: str) -> list[int]:
    found: list[int] = []
    at = document.find(quote)
    while at >= 0 and len(found) < 50:
        found.append(at)
        at = document.find(quote, at + 1)
    return found


def _bridge(document: str, quote: str, parts: Sequence[str]) -> MatchResult | None:
    """Match a quote with its middle left out, from the start of its first part to the end of its last."""
    text = normalise(document, "bare")
    chains: dict[int, int] = {}
    for start in text.find_all(parts[0]):
        end = _chain(text, start, parts)
        if end is not None:
            chains[end] = start  # the last start is the nearest to this end
    if len(chains) > 1:
        return NoMatch("ambiguous", len(chains))
    if chains:
        ((end, start),) = chains.items()
        return Match(include_markup(text, start, end, quote), "ellipsis")
    return None


def _chain(text: NormalisedText, start: int, parts: Sequence[str]) -> int | None:
    at = start + len(parts[0])
    for part in parts[1:-1]:
        found = text.text.find(part, at, at + _MAX_GAP)
        if found < 0:
            return None
        at = found + len(part)
    last = parts[-1]
    paragraph_ends = _PARAGRAPH.search(text.source, text.ends[at - 1])
    here = text.from_source(0, paragraph_ends.start())[1] if paragraph_ends else len(text.text)
    # Of several ends in the paragraph, the last one is meant: an ellipsis leaves out the middle.
    found = text.text.rfind(last, at, here)
    if found < 0:
        found = text.text.find(last, at, at + _MAX_GAP)
    return found + len(last) if found >= 0 else None


def _bridge_approximately(document: str, quote: str, parts: Sequence[str]) -> Match | None:
    """The same with approximate matches of the first and last part."""
    text = normalise(document, "bare")
    first = find_nearest(text, parts[0], quote)
    if first is None or first.ambiguous:
        return None
    last = find_nearest(text, parts[-1], quote, first.end, first.end + _MAX_GAP)
    if last is None or last.ambiguous:
        return None
    score = 1 - max(first.distance, last.distance)
    return Match(include_markup(text, first.start, last.end, quote), "ellipsis", score)


def _nearest(document: str, quote: str, within: Span | None) -> MatchResult:
    text, wanted = normalise(document, "bare"), _normalised_quote(quote, "bare")
    near = find_nearest(text, wanted, quote)
    if near is not None and near.ambiguous and within is not None:
        near = find_nearest(text, wanted, quote, *text.from_source(within.start, within.end))
    if near is None:
        return NoMatch("absent")
    if near.ambiguous:
        return NoMatch("ambiguous", 2)
    return Match(include_markup(text, near.start, near.end, quote), "fuzzy", 1 - near.distance)
