"""The event store: an append-only log, projections rebuilt from it, durable jobs and the bus."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
