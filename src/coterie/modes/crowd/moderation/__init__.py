"""Rule-based moderation of chat messages: word lists, link policy and redaction. No model is called."""

from coterie.modes.crowd.moderation.moderator import ModerationFinding, ModerationPolicy, ModerationVerdict, Moderator
from coterie.modes.crowd.moderation.wordlist import Wordlist, read_wordlists

__all__ = ["ModerationFinding", "ModerationPolicy", "ModerationVerdict", "Moderator", "Wordlist", "read_wordlists"]
