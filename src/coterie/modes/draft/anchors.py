"""Anchors: passages of a document that are tracked through edits.

An anchor is located once, perhaps approximately; from then on its offsets are mapped through every edit, and it is
fresh as long as exactly its text is there. Fuzzy matching would also find passages that were really rewritten, so it is
used only to suggest where a stale proposal could be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coterie.modes.draft.diff import Span, SpanMap, TextEdit
from coterie.modes.draft.locate import Match, MatchResult, locate, occurrences

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
