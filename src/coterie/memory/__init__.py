"""Memory: what a character knows, who may know it, and how it knows it. Usable alone as a library."""

from coterie.memory.library import Memory

__all__ = ["Memory"]
