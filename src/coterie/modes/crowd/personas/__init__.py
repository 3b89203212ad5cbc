"""Who is in the room: personas and rooms as files that anybody can edit. C5"""

from coterie.modes.crowd.personas.persona import Persona, Situation, Traits
from coterie.modes.crowd.personas.room_file import RoomConfig, Tempo, Tuning
from coterie.modes.crowd.personas.roster import CrowdConfigs

__all__ = ["Persona", "RoomConfig", "CrowdConfigs", "Situation", "Tempo", "Traits", "Tuning"]
