"""Characters played by an external agent over a WebSocket, with a fallback while it is not connected."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
