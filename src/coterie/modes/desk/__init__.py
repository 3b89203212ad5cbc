"""Desk: a character that gets work done and never goes silent while it works."""
