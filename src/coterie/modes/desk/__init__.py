"""Desk mode: a character that does tasks with files and commands and answers while they run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
