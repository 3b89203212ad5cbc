"""JSON as Matrix signs it: the same bytes for the same thing, with who vouches for it beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from vodozemac import Ed25519PublicKey, Ed25519Signature

# Bytes as Matrix writes them: base64 without its padding.


def to_base64(data: bytes, *, url: bool = False) -> str:
    encoded = base64.urlsafe_b64encode(data) if url else base64.b64encode(data)
    return encoded.decode().rstrip("=")


def from_base64(text: str, *, url: bool = False) -> bytes:
    """Raises ValueError for what is no base64."""
    padded = text + "=" * (-len(text) % 4)
    return base64.b64decode(padded, altchars=b"-_" if url else None, validate=True)


Json = dict[str, Any]


def canonical_json(told: Json) -> bytes:
    """Without what is never signed: the signatures themselves, and what servers add."""
    signed = {key: value for key, value in told.items() if key not in ("signatures", "unsigned")}
    return json.dumps(signed, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def sign_json(told: Json, user: str, key_id: str, sign: Callable[[bytes], str]) -> Json:
    """With our signature added to those it has."""
    before = told.get("signatures", {})
    ours = {**before.get(user, {}), f"ed25519:{key_id}": sign(canonical_json(told))}
    return {**told, "signatures": {**before, user: ours}}


def has_signature(told: Any, user: str, key_id: str, public: str) -> bool:
    """Whether that key vouches for it. Whatever is malformed is not signed."""
    try:
        signature = Ed25519Signature.from_base64(told["signatures"][user][f"ed25519:{key_id}"])
        Ed25519PublicKey.from_base64(public).verify_signature(canonical_json(told), signature)
    except (KeyError, TypeError, ValueError):
        return False
    return True
