"""How personas change from session to session: a little, within bounds, with reasons, and never beyond recall. C14"""

from coterie.modes.crowd.drift.drifts import DriftBook, Drifts, Snapshot
from coterie.modes.crowd.drift.reflection import FOR_LIFE, TRAITS, Happened, reflect

__all__ = ["FOR_LIFE", "TRAITS", "DriftBook", "Drifts", "Happened", "Snapshot", "reflect"]
