"""JSON as Matrix signs it: the same bytes for the same thing, with who vouches for it beside it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from vodozemac import Ed25519PublicKey, Ed25519Signature

from coterie.messaging.errors import BadFile

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


# Files in sealed rooms: sealed piece by piece as they go, so that a large one needs no more memory than a small.


class EncryptedFile:
    """A file on its way out: read `chunks` to its end, then `told` says how to open it."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._key, self._start = os.urandom(32), os.urandom(8) + bytes(8)
        self._hash = hashlib.sha256()

    async def chunks(self) -> AsyncIterator[bytes]:
        cipher = Cipher(AES(self._key), CTR(self._start)).encryptor()
        async for chunk in self._chunks:
            sealed = cipher.update(chunk)
            self._hash.update(sealed)
            yield sealed

    def metadata(self, uri: str) -> Json:
        key = {"kty": "oct", "key_ops": ["encrypt", "decrypt"], "alg": "A256CTR", "ext": True}
        return {
            "v": "v2",
            "url": uri,
            "key": {**key, "k": to_base64(self._key, url=True)},
            "iv": to_base64(self._start),
            "hashes": {"sha256": to_base64(self._hash.digest())},
        }


async def decrypt_file(chunks: AsyncIterator[bytes], metadata: Any) -> AsyncIterator[bytes]:
    """A file that came in. It is known to be whole only at its end: what was made of it until then must not be kept."""
    try:
        key, start = from_base64(metadata["key"]["k"], url=True), from_base64(metadata["iv"])
        wanted = from_base64(metadata["hashes"]["sha256"])
        cipher = Cipher(AES(key), CTR(start)).decryptor()
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile("The file came without a key that fits.", "Send it again.") from error
    found = hashlib.sha256()
    async for chunk in chunks:
        found.update(chunk)
        yield cipher.update(chunk)
    if not hmac.compare_digest(found.digest(), wanted):
        raise BadFile("The file is not what was sent.", "Send it again.")
