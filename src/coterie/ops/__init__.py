"""Operations: backups and snapshots, health checks, metrics, and editing of settings."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
