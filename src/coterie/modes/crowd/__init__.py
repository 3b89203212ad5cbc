"""Crowd mode: rooms of personas that chat about a live stream. Each persona decides on its own when to speak."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
