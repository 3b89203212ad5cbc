"""An asset of a card: a picture or sound, and where it is. Only what travels with the card is ever read."""

from __future__ import annotations

import base64
import binascii
from typing import Self
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel, ConfigDict

from coterie.cast.cards.document import Document
from coterie.cast.cards.lenient import text_or_empty

# The specification spells the first one wrong, and so does everybody.
_EMBEDDED = ("embeded://", "embedded://", "__asset:")


class CardAsset(BaseModel):
    model_config = ConfigDict(frozen=True)

    type: str
    uri: str
    name: str
    ext: str

    @classmethod
    def read(cls, raw: Document) -> Self:
        return cls(**{field: text_or_empty(raw.get(field)) for field in ("type", "uri", "name", "ext")})

    def inline_bytes(self) -> bytes | None:
        """What a `data:` address holds."""
        if not self.uri.lower().startswith("data:") or "," not in self.uri:
            return None
        head, body = self.uri.split(",", 1)
        if not head.lower().endswith(";base64"):
            return unquote_to_bytes(body)
        try:
            return base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError):
            return None


def embedded_path(uri: str) -> str | None:
    """The path inside the card's file that an address means."""
    for scheme in _EMBEDDED:
        if uri.lower().startswith(scheme):
            return uri[len(scheme) :]
    return None
