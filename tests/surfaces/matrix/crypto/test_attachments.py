"""Encrypted files, and tampered ones."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nio.crypto.attachments import decrypt_attachment

from coterie.messaging.errors import BadFile
from coterie.surfaces.matrix.crypto.primitives import EncryptedFile, decrypt_file, from_base64, to_base64


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def read(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in chunks])


@given(st.lists(st.binary(max_size=100), max_size=8))
async def test_p6_a_file_is_the_same_after_decryption_however_it_is_chunked(parts: list[bytes]) -> None:
    file = EncryptedFile(pieces(*parts))
    sealed = await read(file.chunks())
    info, whole = file.metadata("mxc://here/1"), b"".join(parts)
    assert await read(decrypt_file(pieces(sealed[:3], sealed[3:]), info)) == whole
    theirs = decrypt_attachment(sealed, info["key"]["k"], info["hashes"]["sha256"], info["iv"])
    assert theirs == whole, "another client reads it too"


async def test_p6_a_tampered_file_is_refused() -> None:
    file = EncryptedFile(pieces(b"the tide is high"))
    sealed = await read(file.chunks())
    info = file.metadata("mxc://here/1")
    with pytest.raises(BadFile):
        await read(decrypt_file(pieces(sealed[:-1] + b"?"), info))
    for broken in (
        None,
        {},
        {**info, "iv": "?"},
        {**info, "key": {"k": "AAAA"}},
        {**info, "hashes": {}},
    ):
        with pytest.raises(BadFile):
            await read(decrypt_file(pieces(sealed), broken))


@given(st.binary(max_size=60), st.booleans())
def test_base64_without_padding_goes_both_ways(data: bytes, url: bool) -> None:
    assert from_base64(to_base64(data, url=url), url=url) == data
