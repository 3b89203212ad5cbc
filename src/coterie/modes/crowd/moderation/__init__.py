"""Keeping a room civil, at thousands of messages a second: no model is asked, and every action says its rule. C16"""

from coterie.modes.crowd.moderation.moderator import ModerationFinding, ModerationVerdict, Moderator
from coterie.modes.crowd.moderation.policy import ModerationPolicy
from coterie.modes.crowd.moderation.wordlist import Wordlist, read_wordlists

__all__ = ["ModerationFinding", "ModerationPolicy", "Moderator", "ModerationVerdict", "Wordlist", "read_wordlists"]
