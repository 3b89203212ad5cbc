"""From a block in a reply to a proposal with a place. F5, F6"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Literal

from coterie.modes.draft.anchors import Anchor, anchor_at
from coterie.modes.draft.blocks import Block
from coterie.modes.draft.events import ChangeProposed, Place
from coterie.modes.draft.locate import locate
from coterie.modes.draft.placing import Found, How, Span
from coterie.modes.draft.threads import Thread
from coterie.modes.draft.workspace import Version


@dataclass(frozen=True, slots=True)
class Placed:
    proposed: str
    place: Place | None
    how: How | None = None
    score: float = 1.0
    missing: Literal["", "absent", "ambiguous"] = ""
    inserts: bool = False


def placed(original: str, proposed: str, version: Version, about: Anchor | None) -> Placed:
    """`about` is the selection or the thread's own place: what the talk is about."""
    within = about.span if about is not None and about.fresh else None
    if not original.strip():
        if within is None:
            return Placed(proposed, None, missing="absent")
        return Placed(proposed, _place(version, within), "exact", inserts=True)
    found = locate(version.text, original, within)
    if "&" in original and not (isinstance(found, Found) and found.how != "fuzzy"):
        # Some models write entities inside tags. Only when the raw text is nowhere is that what they meant.
        decoded = locate(version.text, html.unescape(original), within)
        if isinstance(decoded, Found) and (decoded.how != "fuzzy" or not isinstance(found, Found)):
            found, proposed = decoded, html.unescape(proposed)
    if isinstance(found, Found):
        return Placed(proposed, _place(version, found.span), found.how, found.score)
    return Placed(proposed, None, missing=found.why)


def proposal(
    thread: Thread, reply: str, number: int, author: str, block: Block, version: Version, about: Anchor | None
) -> ChangeProposed:
    where = placed(block.original, block.proposed, version, about)
    return ChangeProposed(
        change=change_id(reply, number),
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


def change_id(reply: str, number: int) -> str:
    """The same block of the same reply is always the same change: nothing is proposed twice."""
    return f"{reply}-{number}"


def _place(version: Version, span: Span) -> Place:
    return Place.of(anchor_at(version.text, span))
