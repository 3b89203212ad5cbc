"""From a decision to a line: what a persona knows when it speaks, who puts it into words, and what may not be said."""

from coterie.modes.crowd.voice.brief import Brief
from coterie.modes.crowd.voice.manners import Manners
from coterie.modes.crowd.voice.phrasebook import Phrasebook

__all__ = ["Brief", "Manners", "Phrasebook"]
