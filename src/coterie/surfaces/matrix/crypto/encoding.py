"""Bytes as Matrix writes them: base64 without its padding."""

from __future__ import annotations

import base64


def to_base64(data: bytes, *, url: bool = False) -> str:
    encoded = base64.urlsafe_b64encode(data) if url else base64.b64encode(data)
    return encoded.decode().rstrip("=")


def from_base64(text: str, *, url: bool = False) -> bytes:
    """Raises ValueError for what is no base64."""
    padded = text + "=" * (-len(text) % 4)
    return base64.b64decode(padded, altchars=b"-_" if url else None, validate=True)
