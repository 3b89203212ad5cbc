"""What is signed, by whom, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.errors import ConfigError
from coterie.base.paths import write_private_json
from coterie.surfaces.matrix.crypto.devices import PARTS, CrossSigningIdentity
from coterie.surfaces.matrix.crypto.primitives import canonical_json, has_signature

_json = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda deeper: st.lists(deeper, max_size=3))


@given(st.dictionaries(st.text(), _json, max_size=5))
def test_a_signature_holds_for_what_was_signed_and_nothing_else(told: dict[str, object]) -> None:
    identity = CrossSigningIdentity.new()
    public = identity.public("master")
    signed = identity.sign(told, "@bot", "master")
    assert has_signature(signed, "@bot", public, public)
    assert has_signature({**signed, "unsigned": {"age": 1}}, "@bot", public, public)
    assert not has_signature({**signed, "more": 1}, "@bot", public, public)
    assert not has_signature(signed, "@ana", public, public)
    other = CrossSigningIdentity.new().public("master")
    assert not has_signature(signed, "@bot", public, other)


@pytest.mark.parametrize("told", [None, "x", {}, {"signatures": []}, {"signatures": {"@bot": {"ed25519:K": "?"}}}])
def test_what_is_malformed_is_not_signed(told: object) -> None:
    assert not has_signature(told, "@bot", "K", "K")


def test_the_same_thing_is_the_same_bytes() -> None:
    assert canonical_json({"b": [1, "ü"], "a": {"d": 1, "c": None}}) == '{"a":{"c":null,"d":1},"b":[1,"ü"]}'.encode()


def test_p7_an_identity_is_kept_for_its_owner_only_and_told_when_it_is_damaged(tmp_path: Path) -> None:
    file, identity = tmp_path / "matrix" / "identity.json", CrossSigningIdentity.new()
    assert CrossSigningIdentity.load(file) is None
    write_private_json(file, identity.seeds)
    again = CrossSigningIdentity.load(file)
    assert again is not None and [again.public(part) for part in PARTS] == [identity.public(part) for part in PARTS]
    assert file.stat().st_mode & 0o077 == 0
    file.write_text('{"master": "half')
    with pytest.raises(ConfigError, match="identity"):
        CrossSigningIdentity.load(file)
