"""How personas change from session to session: a little, within bounds, with reasons, and never beyond recall. C14"""

from coterie.modes.crowd.drift.drifts import DriftProjection, DriftSnapshot, PersonaDrift
from coterie.modes.crowd.drift.reflection import MAX_TOTAL_DRIFT, TRAITS, SessionActivity, compute_drift

__all__ = [
    "MAX_TOTAL_DRIFT",
    "TRAITS",
    "PersonaDrift",
    "DriftProjection",
    "SessionActivity",
    "DriftSnapshot",
    "compute_drift",
]
