"""What the draft mode brings to the house: its views."""

from __future__ import annotations

from coterie.kernel import Projection
from coterie.modes.draft.changes import ProposalProjection
from coterie.modes.draft.notices import NotificationProjection
from coterie.modes.draft.threads import ThreadProjection


def projections() -> list[Projection]:
    return [ThreadProjection(), ProposalProjection(), NotificationProjection()]
