"""Twitch: the chat of a channel in a crowd room, and, if it is allowed, lines of personas in the channel."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
