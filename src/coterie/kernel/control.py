"""The events that change which earlier events count. None of them deletes anything.

`counted` after each of them is a pure function of the stream's own log up to it, which is why a redo is
just a rewind to the moment before the rewind, and why a fork can inherit any line, even an abandoned one.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.kernel.events import NewEvent, Payload


class Rewound(Payload, kind="rewound"):
    """What counts is again exactly what counted when `to` was the stream's last event."""

    to: int
    """A number in this stream; 0 is before its first event."""
    redo: bool = False
    """True when it takes a rewind or a reset back."""


class Superseded(Payload, kind="superseded"):
    """These stretches of the stream stop counting, and those count again (an alternative is chosen)."""

    drop: tuple[tuple[int, int], ...] = ()
    """First and last number of each stretch that stops counting."""
    restore: tuple[tuple[int, int], ...] = ()
    """First and last number of each stretch that counts again."""


class Reset(Payload, kind="reset"):
    """Nothing before this counts any more."""


class Forked(Payload, kind="forked"):
    """The first event of a new line: it inherits what counted in `parent` at `at`, and goes on from there."""

    parent: str
    """The stream it comes from."""
    at: int
    """The number of the last event that both lines share."""


class Purged(Payload, kind="purged"):
    """The only deletion there is: these events were erased for privacy, and cannot come back."""

    stream: str
    """Where they stood."""
    events: int
    """How many there were; those that say what counts (`rewound` …) stay, without key, turn and actor."""
    first_seq: int
    """The number of the first of them."""
    last_seq: int
    """The number of the last of them."""
    reason: str = ""
    """As whoever did it gave it; may be empty."""


CONTROL_KINDS = (Rewound.kind, Superseded.kind, Reset.kind, Forked.kind)

_BRIEF = 16


def is_small(new_events: Sequence[NewEvent]) -> bool:
    """Whether they take a moment to record: a few, and none that changes what counts."""
    return len(new_events) <= _BRIEF and all(draft.payload.kind not in CONTROL_KINDS for draft in new_events)
