"""Models: settings and roles, routing, providers, structured output, tokens, usage, recordings."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
