"""From a decision to a line: what a persona knows when it speaks, who puts it into words, and what may not be said."""

from coterie.modes.crowd.generation.line_rules import LineRules
from coterie.modes.crowd.generation.prompts import LineRequest
from coterie.modes.crowd.generation.writers import CannedLines

__all__ = ["CannedLines", "LineRequest", "LineRules"]
