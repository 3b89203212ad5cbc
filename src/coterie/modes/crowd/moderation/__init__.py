"""Keeping a room civil, at thousands of messages a second: no model is asked, and every action says its rule. C16"""

from coterie.modes.crowd.moderation.moderator import Finding, Moderator, Verdict
from coterie.modes.crowd.moderation.policy import ModerationPolicy
from coterie.modes.crowd.moderation.wordlist import Wordlist, read_wordlists

__all__ = ["Finding", "ModerationPolicy", "Moderator", "Verdict", "Wordlist", "read_wordlists"]
