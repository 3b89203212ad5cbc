"""Coterie: a local-first engine for AI characters that remember.

The log is the only truth. Everything else is a view you can throw away.
"""

__version__ = "0.1.0"
