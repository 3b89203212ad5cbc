"""Rewinding, forking and resetting: what takes back parts of a chat, or continues it from an earlier point."""
