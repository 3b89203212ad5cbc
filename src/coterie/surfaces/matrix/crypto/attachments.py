"""Files in sealed rooms: sealed piece by piece as they go, so that a large one needs no more memory than a small."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import AsyncIterator
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from coterie.messaging.errors import BadFile
from coterie.surfaces.matrix.crypto.signing import Json, from_base64, to_base64


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
