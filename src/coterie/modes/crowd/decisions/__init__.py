"""How personas decide, each for itself, from what everybody can hear. C6, C8, C15"""

from coterie.modes.crowd.decisions.decision import Decision, PersonaDecider
from coterie.modes.crowd.decisions.room_state import ChatHistory, RoomState
from coterie.modes.crowd.decisions.trends import TrendTracker

__all__ = ["ChatHistory", "Decision", "PersonaDecider", "RoomState", "TrendTracker"]
