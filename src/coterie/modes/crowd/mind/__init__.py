"""How personas decide, each for itself, from what everybody can hear. C6, C8, C15"""

from coterie.modes.crowd.mind.decision import Decision, PersonaDecider
from coterie.modes.crowd.mind.hearing import ChatHistory
from coterie.modes.crowd.mind.scene import RoomState
from coterie.modes.crowd.mind.trending import TrendTracker

__all__ = ["Decision", "ChatHistory", "PersonaDecider", "RoomState", "TrendTracker"]
