"""Compressed texts are read back exactly, by every later version too."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.errors import Corrupt
from coterie.eventstore.sqlite import compression
from coterie.eventstore.sqlite.compression import compress, decompress


@given(st.text() | st.text(min_size=200) | st.text(alphabet='{"text":, ', min_size=100))
def test_a_text_is_read_back_exactly_and_never_larger(text: str) -> None:
    stored = compress(text)
    assert decompress(stored) == text
    size = len(stored.encode() if isinstance(stored, str) else stored)
    assert size <= len(text.encode())


def test_the_dictionaries_of_the_file_format_do_not_change() -> None:
    hashes = {number: hashlib.sha256(one).hexdigest()[:16] for number, one in compression._DICTIONARIES.items()}
    assert hashes == {1: "de63fbe405129cb8"}, "add a dictionary with a new number instead"


@pytest.mark.parametrize("stored", [b"", b"\x09abc", b"\x01\xff\xff", compress("x" * 500)[:4]])
def test_a_damaged_blob_is_reported(stored: bytes) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        decompress(stored)
