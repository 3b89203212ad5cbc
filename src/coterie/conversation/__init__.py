"""Turns, streamed replies, the live feed of a room and the search over turns, for every mode."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
