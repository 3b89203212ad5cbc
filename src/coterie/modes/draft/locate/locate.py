"""Finding the place in a document that a quote means. F6

Exactly once is best. Otherwise, in order: white space, quotes and dashes evened out; Markdown's signs and escapes left
out; ellipses bridged; and, last, the nearest place if it is near enough and clearly ahead of the second nearest. This
is done once, when a change is proposed: from then on the exact text decides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from coterie.modes.draft.diff import Match, MatchKind, MatchResult, NoMatch, Span
from coterie.modes.draft.locate.fuzzy import find_nearest
from coterie.modes.draft.locate.normalise import Level, NormalisedText, include_markup, normalise, unescape

_ELLIPSIS = re.compile(r"\s*[\[(]?\.{3,}[\])]?\s*")
_SHORTEST_PART = 4
_MOST_DOTS = 6
_WIDEST_GAP = 5_000
"""Characters that an ellipsis may stand for."""
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


def locate(document: str, quote: str, within: Span | None = None) -> MatchResult:
    """`within` is where the talk is about: of several places, the one there is meant."""
    if not quote.strip():
        return NoMatch("absent")
    literal = unescape(quote)
    found = _as_it_is(document, quote, within)
    if found is None and literal != quote:
        found = _as_it_is(document, literal, within)
        found = Match(found.span, "markup") if isinstance(found, Match) else found
    return found or _bare(document, quote, within) or _beyond_formatting(document, quote, within)


def _as_it_is(document: str, quote: str, within: Span | None) -> MatchResult | None:
    """Letter by letter, or with white space, quotes and dashes evened out."""
    exact = _one([Span(at, at + len(quote)) for at in _occurrences(document, quote)], "exact", within)
    if exact is not None:
        return exact
    text, wanted = normalise(document, "plain"), _wanted(quote, "plain")
    spans = [Span(*text.to_source(at, at + len(wanted))) for at in text.find_all(wanted)] if wanted else []
    return _one(spans, "normalised", within)


def _bare(document: str, quote: str, within: Span | None) -> MatchResult | None:
    """Without Markdown's signs."""
    text, wanted = normalise(document, "bare"), _wanted(quote, "bare")
    spans = [include_markup(text, at, at + len(wanted), quote) for at in text.find_all(wanted)] if wanted else []
    return _one(spans, "markup", within)


def _beyond_formatting(document: str, quote: str, within: Span | None) -> MatchResult:
    return _with_ellipsis(document, quote, within) or _nearest(document, quote, within)


def _with_ellipsis(document: str, quote: str, within: Span | None) -> MatchResult | None:
    splits = _splits(_wanted(quote, "bare"))
    for parts in splits:
        bridged = _bridged(document, quote, parts)
        if bridged is not None:
            return bridged
    if not splits:
        return None
    # Three dots may be the document's own: then the quote fits well as it is, dots and all.
    literal = _nearest(document, quote, within)
    if isinstance(literal, Match) and _ELLIPSIS.search(document, literal.span.start, literal.span.end):
        return literal
    nearly = (_bridged_nearly(document, quote, parts) for parts in splits)
    return next((found for found in nearly if found is not None), NoMatch("absent"))


def _splits(quote: str) -> list[list[str]]:
    """The quote's parts around its ellipses: around all of them, or around one, the others being the document's own."""
    parts = [part for part in _ELLIPSIS.split(quote) if part]
    if len(parts) < 2:
        return []
    dots = list(_ELLIPSIS.finditer(quote))
    each = [[quote[: one.start()], quote[one.end() :]] for one in dots] if 1 < len(dots) <= _MOST_DOTS else []
    return [split for split in [parts, *each] if min(len(split[0]), len(split[-1])) >= _SHORTEST_PART]


def _wanted(quote: str, depth: Level) -> str:
    return normalise(unescape(quote) if depth == "bare" else quote, depth).text.strip()


def _one(spans: Sequence[Span], how: MatchKind, within: Span | None) -> MatchResult | None:
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


def _bridged(document: str, quote: str, parts: Sequence[str]) -> MatchResult | None:
    """A quote with its middle left out: from where its first part begins to where its last part ends."""
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
        found = text.text.find(part, at, at + _WIDEST_GAP)
        if found < 0:
            return None
        at = found + len(part)
    last = parts[-1]
    paragraph_ends = _PARAGRAPH.search(text.source, text.ends[at - 1])
    here = text.from_source(0, paragraph_ends.start())[1] if paragraph_ends else len(text.text)
    # Of several ends in the paragraph the outermost is meant: who leaves the middle out keeps both ends.
    found = text.text.rfind(last, at, here)
    if found < 0:
        found = text.text.find(last, at, at + _WIDEST_GAP)
    return found + len(last) if found >= 0 else None


def _bridged_nearly(document: str, quote: str, parts: Sequence[str]) -> Match | None:
    """The same where a word at either end is wrong."""
    text = normalise(document, "bare")
    first = find_nearest(text, parts[0], quote)
    if first is None or first.ambiguous:
        return None
    last = find_nearest(text, parts[-1], quote, first.end, first.end + _WIDEST_GAP)
    if last is None or last.ambiguous:
        return None
    score = 1 - max(first.distance, last.distance)
    return Match(include_markup(text, first.start, last.end, quote), "ellipsis", score)


def _nearest(document: str, quote: str, within: Span | None) -> MatchResult:
    text, wanted = normalise(document, "bare"), _wanted(quote, "bare")
    near = find_nearest(text, wanted, quote)
    if near is not None and near.ambiguous and within is not None:
        near = find_nearest(text, wanted, quote, *text.from_source(within.start, within.end))
    if near is None:
        return NoMatch("absent")
    if near.ambiguous:
        return NoMatch("ambiguous", 2)
    return Match(include_markup(text, near.start, near.end, quote), "fuzzy", 1 - near.distance)
