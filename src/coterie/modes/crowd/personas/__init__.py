"""Who is in the room: personas and rooms as files that anybody can edit. C5"""

from coterie.modes.crowd.personas.config_files import CrowdConfigs, RoomConfig, Tempo, Tuning
from coterie.modes.crowd.personas.persona import Persona, Situation, Traits

__all__ = ["CrowdConfigs", "Persona", "RoomConfig", "Situation", "Tempo", "Traits", "Tuning"]
