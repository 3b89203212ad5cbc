"""From a decision to a line: what a persona knows when it speaks, who puts it into words, and what may not be said."""

from coterie.modes.crowd.voice.brief import LineRequest
from coterie.modes.crowd.voice.manners import LineRules
from coterie.modes.crowd.voice.phrasebook import CannedLines

__all__ = ["LineRequest", "LineRules", "CannedLines"]
