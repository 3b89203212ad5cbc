"""Characters and people: identities, profiles, visits, and the card files they are imported from."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
