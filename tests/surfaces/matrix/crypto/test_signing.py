"""Signatures of JSON documents, and the identity file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.errors import ConfigError
from coterie.base.paths import write_private_json
from coterie.surfaces.matrix.crypto.devices import PARTS, CrossSigningIdentity
from coterie.surfaces.matrix.crypto.primitives import canonical_json, curve25519_key, has_signature, to_base64

_json = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda deeper: st.lists(deeper, max_size=3))


@given(st.dictionaries(st.text(), _json, max_size=5))
def test_a_signature_is_valid_only_for_the_signed_document(document: dict[str, object]) -> None:
    identity = CrossSigningIdentity.new()
    public = identity.public("master")
    signed = identity.sign(document, "@bot", "master")
    assert has_signature(signed, "@bot", public, public)
    assert has_signature({**signed, "unsigned": {"age": 1}}, "@bot", public, public)
    assert not has_signature({**signed, "more": 1}, "@bot", public, public)
    assert not has_signature(signed, "@ana", public, public)
    other = CrossSigningIdentity.new().public("master")
    assert not has_signature(signed, "@bot", public, other)


@pytest.mark.parametrize("document", [None, "x", {}, {"signatures": []}, {"signatures": {"@bot": {"ed25519:K": "?"}}}])
def test_a_malformed_document_has_no_signature(document: object) -> None:
    assert not has_signature(document, "@bot", "K", "K")


def test_canonical_json_is_deterministic() -> None:
    assert canonical_json({"b": [1, "ü"], "a": {"d": 1, "c": None}}) == '{"a":{"c":null,"d":1},"b":[1,"ü"]}'.encode()


def test_p7_an_identity_file_is_private_and_damage_is_reported(tmp_path: Path) -> None:
    file, identity = tmp_path / "matrix" / "identity.json", CrossSigningIdentity.new()
    assert CrossSigningIdentity.load(file) is None
    write_private_json(file, identity.seeds)
    again = CrossSigningIdentity.load(file)
    assert again is not None and [again.public(part) for part in PARTS] == [identity.public(part) for part in PARTS]
    assert file.stat().st_mode & 0o077 == 0
    file.write_text('{"master": "half')
    with pytest.raises(ConfigError, match="identity"):
        CrossSigningIdentity.load(file)


def test_a_key_of_a_wrong_length_is_refused() -> None:
    """vodozemac panics on it, which is not an `Exception`."""
    signature = to_base64(bytes(64))
    document = {"signatures": {"@eve": {"ed25519:PHONE": signature}}}
    for size in (0, 31, 33):
        assert not has_signature(document, "@eve", "PHONE", to_base64(bytes(size)))
        with pytest.raises(ValueError):
            curve25519_key(to_base64(bytes(size)))
