"""Who is in the room: personas and rooms as files that anybody can edit. C5"""

from coterie.modes.crowd.personas.persona import Persona, Situation, Traits
from coterie.modes.crowd.personas.room_file import RoomFile, Tempo, Tuning
from coterie.modes.crowd.personas.roster import Roster

__all__ = ["Persona", "RoomFile", "Roster", "Situation", "Tempo", "Traits", "Tuning"]
