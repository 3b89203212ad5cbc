"""Draft: writing a document together with a character.

This is what surfaces may use of it; the rest is its own business.
"""
