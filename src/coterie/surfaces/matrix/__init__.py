"""Matrix: a space per person with a room per chat, on any homeserver."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
