"""Keeping a room civil, at thousands of messages a second: no model is asked, and every action says its rule. C16"""

from coterie.modes.crowd.moderation.moderator import ModerationFinding, ModerationPolicy, ModerationVerdict, Moderator
from coterie.modes.crowd.moderation.wordlist import Wordlist, read_wordlists

__all__ = ["ModerationFinding", "ModerationPolicy", "ModerationVerdict", "Moderator", "Wordlist", "read_wordlists"]
