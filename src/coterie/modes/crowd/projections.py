"""What the crowd brings to the house: its events, and its view of who has changed."""

from __future__ import annotations

from coterie.eventstore import Projection
from coterie.modes.crowd import events
from coterie.modes.crowd.drift import DriftProjection

__all__ = ["events", "projections"]


def projections() -> list[Projection]:
    return [DriftProjection()]
