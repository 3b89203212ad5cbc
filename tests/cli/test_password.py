"""`coterie password`, and the refusal to listen beyond loopback without a password. P17"""

from __future__ import annotations

import io
import tomllib

import pytest
from argon2 import PasswordHasher

from coterie.base.paths import Paths
from tests.cli.conftest import Call


def stored_hash(home: Paths) -> str:
    found: str = tomllib.loads(home.config.read_text())["server"]["password"]
    return found


def test_p17_a_password_is_stored_as_a_hash(home: Paths, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a long password\n"))
    assert call("password").code == 0
    assert PasswordHasher().verify(stored_hash(home), "a long password")
    assert "a long password" not in home.config.read_text()
    assert call("password", "--remove").code == 0
    assert stored_hash(home) == ""


def test_p17_without_a_password_only_loopback_is_allowed(call: Call) -> None:
    refused = call("serve", "--host", "0.0.0.0")
    assert refused.code != 0
    assert "coterie password" in refused.err


def test_p17_a_short_password_is_refused(home: Paths, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    refused = call("password")
    assert refused.code != 0
    assert "at least 8" in refused.err
    assert "password" not in tomllib.loads(home.config.read_text()).get("server", {})
