"""From a block in a reply to a proposal with a place. F5, F6"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Literal

from coterie.modes.draft.anchors import Anchor, anchor_at
from coterie.modes.draft.blocks import EditBlock
from coterie.modes.draft.events import AnchorData, ChangeProposed
from coterie.modes.draft.locate import locate
from coterie.modes.draft.placing import Match, MatchKind, Span
from coterie.modes.draft.threads import Thread
from coterie.modes.draft.workspace import DocumentVersion


@dataclass(frozen=True, slots=True)
class PlacedEdit:
    proposed: str
    place: AnchorData | None
    how: MatchKind | None = None
    score: float = 1.0
    missing: Literal["", "absent", "ambiguous"] = ""
    inserts: bool = False


def locate_edit(original: str, proposed: str, version: DocumentVersion, about: Anchor | None) -> PlacedEdit:
    """`about` is the selection or the thread's own place: what the talk is about."""
    within = about.span if about is not None and about.fresh else None
    if not original.strip():
        if within is None:
            return PlacedEdit(proposed, None, missing="absent")
        return PlacedEdit(proposed, _place(version, within), "exact", inserts=True)
    found = locate(version.text, original, within)
    if "&" in original and not (isinstance(found, Match) and found.how != "fuzzy"):
        # Some models write entities inside tags. Only when the raw text is nowhere is that what they meant.
        decoded = locate(version.text, html.unescape(original), within)
        if isinstance(decoded, Match) and (decoded.how != "fuzzy" or not isinstance(found, Match)):
            found, proposed = decoded, html.unescape(proposed)
    if isinstance(found, Match):
        return PlacedEdit(proposed, _place(version, found.span), found.how, found.score)
    return PlacedEdit(proposed, None, missing=found.reason)


def proposal_event(
    thread: Thread,
    reply: str,
    number: int,
    author: str,
    block: EditBlock,
    version: DocumentVersion,
    about: Anchor | None,
) -> ChangeProposed:
    where = locate_edit(block.original, block.proposed, version, about)
    return ChangeProposed(
        change=proposal_id(reply, number),
        reply=reply,
        author=author,
        workspace=thread.workspace,
        document=thread.document,
        branch=thread.branch,
        original=block.original,
        proposed=where.proposed,
        reason=block.reason,
        commit=version.commit,
        blob=version.blob,
        place=where.place,
        how=where.how,
        score=where.score,
        missing=where.missing,
        inserts=where.inserts,
    )


def proposal_id(reply: str, number: int) -> str:
    """The same block of the same reply is always the same change: nothing is proposed twice."""
    return f"{reply}-{number}"


def _place(version: DocumentVersion, span: Span) -> AnchorData:
    return AnchorData.of(anchor_at(version.text, span))
