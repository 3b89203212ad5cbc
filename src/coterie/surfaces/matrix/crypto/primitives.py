"""Base64, signed JSON and encrypted files as Matrix defines them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from vodozemac import Curve25519PublicKey, Ed25519PublicKey, Ed25519Signature

from coterie.messaging import BadFile
from coterie.surfaces.matrix.homeserver import Json


def to_base64(data: bytes, *, url: bool = False) -> str:
    """Without padding."""
    encoded = base64.urlsafe_b64encode(data) if url else base64.b64encode(data)
    return encoded.decode().rstrip("=")


def from_base64(text: str, *, url: bool = False) -> bytes:
    """With or without padding; raises ValueError for anything else."""
    padded = text + "=" * (-len(text) % 4)
    return base64.b64decode(padded, altchars=b"-_" if url else None, validate=True)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """vodozemac panics on some malformed input; that is not an `Exception`, so that it would end the task."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError("it is malformed") from None


def curve25519_key(text: str) -> Curve25519PublicKey:
    """Raises ValueError for what is not a key."""
    _check_length(text, 32)
    with panics_as_errors():
        return Curve25519PublicKey.from_base64(text)


def _check_length(text: str, expected: int) -> None:
    if len(from_base64(text)) != expected:
        raise ValueError(f"it does not have {expected} bytes")


def canonical_json(document: Json) -> bytes:
    """The bytes that are signed: without the signatures and without what servers add."""
    signed = {key: value for key, value in document.items() if key not in ("signatures", "unsigned")}
    return json.dumps(signed, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def sign_json(document: Json, user: str, key_id: str, sign: Callable[[bytes], str]) -> Json:
    """The document with our signature added to those it has."""
    signatures = document.get("signatures", {})
    ours = {**signatures.get(user, {}), f"ed25519:{key_id}": sign(canonical_json(document))}
    return {**document, "signatures": {**signatures, user: ours}}


def has_signature(document: Any, user: str, key_id: str, public: str) -> bool:
    """Whether the document has a valid signature of that key; False for anything malformed."""
    try:
        signature = document["signatures"][user][f"ed25519:{key_id}"]
        _check_length(signature, 64)
        _check_length(public, 32)
        with panics_as_errors():
            key = Ed25519PublicKey.from_base64(public)
            key.verify_signature(canonical_json(document), Ed25519Signature.from_base64(signature))
    except (KeyError, TypeError, ValueError, RecursionError):
        return False
    return True


class EncryptedFile:
    """An outgoing file, encrypted chunk by chunk: read all of `chunks`, then `metadata` has the key to it."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._key, self._iv = os.urandom(32), os.urandom(8) + bytes(8)
        self._hash = hashlib.sha256()

    async def chunks(self) -> AsyncIterator[bytes]:
        cipher = Cipher(AES(self._key), CTR(self._iv)).encryptor()
        async for chunk in self._chunks:
            encrypted = cipher.update(chunk)
            self._hash.update(encrypted)
            yield encrypted

    def metadata(self, uri: str) -> Json:
        key = {"kty": "oct", "key_ops": ["encrypt", "decrypt"], "alg": "A256CTR", "ext": True}
        return {
            "v": "v2",
            "url": uri,
            "key": {**key, "k": to_base64(self._key, url=True)},
            "iv": to_base64(self._iv),
            "hashes": {"sha256": to_base64(self._hash.digest())},
        }


async def decrypt_file(chunks: AsyncIterator[bytes], metadata: Any) -> AsyncIterator[bytes]:
    """Decrypt an incoming file. Its hash is checked at the end: if that raises `BadFile`, discard what was read."""
    try:
        key, iv = from_base64(metadata["key"]["k"], url=True), from_base64(metadata["iv"])
        expected = from_base64(metadata["hashes"]["sha256"])
        cipher = Cipher(AES(key), CTR(iv)).decryptor()
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile("The file came without a valid key.", "Send it again.") from error
    digest = hashlib.sha256()
    async for chunk in chunks:
        digest.update(chunk)
        yield cipher.update(chunk)
    if not hmac.compare_digest(digest.digest(), expected):
        raise BadFile("The file is not what was sent.", "Send it again.")
