"""What the draft mode brings to the house: its views."""

from __future__ import annotations

from coterie.kernel import View
from coterie.modes.draft.changes import Changes
from coterie.modes.draft.notices import Notices
from coterie.modes.draft.threads import Threads


def views() -> list[View]:
    return [Threads(), Changes(), Notices()]
