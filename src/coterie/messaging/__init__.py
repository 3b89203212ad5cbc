"""Messages between platforms and modes: inbox, routing, commands, rooms, files and delivery."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
