"""How personas change from session to session: a little, within bounds, with reasons, and never beyond recall. C14"""

from coterie.modes.crowd.drift.drifts import DriftBook, Drifts, Snapshot
from coterie.modes.crowd.drift.reflection import Happened, reflect

__all__ = ["DriftBook", "Drifts", "Happened", "Snapshot", "reflect"]
