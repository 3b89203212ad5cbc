"""Story mode: chats of people with characters that remember. Surfaces use only what is exported here."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
