"""A place in a document that outlives edits: the exact words, what stood around them, and where. F3, F7

Found once, perhaps fuzzily; from then on judged exactly. Its offsets go through every edit, and it is fresh as long as
exactly its words stand there. Fuzzy matching still finds most texts that their author really rewrote, so it may only
offer where a stale proposal could be made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from coterie.modes.draft.diff import Match, MatchResult, Span, SpanMap, TextEdit
from coterie.modes.draft.locate.locate import locate

CONTEXT_LENGTH = 64
"""Characters of prefix and suffix that are kept."""


@dataclass(frozen=True, slots=True)
class Anchor:
    exact: str
    prefix: str
    suffix: str
    start: int
    end: int
    """Where it stands, or, if it is stale, where it stood."""
    blob: str = ""
    """The version of the document that the offsets are about."""
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
    """The anchors after an edit, each fresh or stale by nothing but its exact words."""
    mapping = SpanMap(edits)
    return [_moved(anchor, old, new, mapping, blob) for anchor in anchors]


def find_similar(anchor: Anchor, document: str) -> MatchResult:
    """Where a stale proposal could be made anew, if a person wants it."""
    return locate(
        document, anchor.exact, within=Span(max(0, anchor.start - CONTEXT_LENGTH), anchor.end + CONTEXT_LENGTH)
    )


def relocate(anchor: Anchor, document: str) -> Anchor | None:
    """F3: a thread's place, which may have been rewritten a little; None if it is orphaned."""
    if anchor.fresh:
        return anchor
    placing = find_similar(anchor, document)
    return anchor_at(document, placing.span, anchor.blob) if isinstance(placing, Match) else None


def _moved(anchor: Anchor, old: str, new: str, mapping: SpanMap, blob: str) -> Anchor:
    if anchor.fresh:
        span = mapping.map_unchanged(anchor.span)
        if span is not None:
            return replace(anchor, start=span.start, end=span.end, blob=blob)
    hull = mapping.map_covering(anchor.span)
    place = _back_in_place(anchor, new, hull)
    if place is None:
        place = _elsewhere(anchor, old, new)
    if place is None:
        return replace(anchor, start=hull.start, end=hull.end, blob=blob, fresh=False)
    return replace(anchor, start=place, end=place + len(anchor.exact), blob=blob, fresh=True)


def _back_in_place(anchor: Anchor, new: str, hull: Span) -> int | None:
    """Where the words stand in what took their place, or across its edge, if there is no doubt."""
    further = len(anchor.exact) - 1
    near = _all(new, anchor.exact, max(0, hull.start - further), hull.end + further)
    found = [at for at in near if Span(at, at + len(anchor.exact)).overlaps(hull)]
    if len(found) > 1:
        found = [at for at in found if any(_around(anchor, new, at))]
    return found[0] if len(found) == 1 else None


def _elsewhere(anchor: Anchor, old: str, new: str) -> int | None:
    """Words that were moved, or came back elsewhere.

    A copy that stood there all along is not them, unless it is the only one left and stands in their surroundings.
    """
    found = _all(new, anchor.exact, 0, len(new))
    if len(found) != 1:
        return None
    copies = [at for at in _all(old, anchor.exact, 0, len(old)) if not (anchor.fresh and at == anchor.start)]
    return found[0] if not copies or _around(anchor, new, found[0]) == (True, True) else None


def _around(anchor: Anchor, new: str, at: int) -> tuple[bool, bool]:
    """Whether the same stands before and after words at a place as stood around the anchor."""
    end = at + len(anchor.exact)
    return new[max(0, at - CONTEXT_LENGTH) : at] == anchor.prefix, new[end : end + CONTEXT_LENGTH] == anchor.suffix


def _all(text: str, exact: str, start: int, end: int) -> list[int]:
    found: list[int] = []
    at = text.find(exact, start, end) if exact else -1
    while at >= 0:
        found.append(at)
        at = text.find(exact, at + 1, end)
    return found
