"""`coterie settings` changes what the page protects, with the same checks as a start."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from coterie.base.paths import Paths
from tests.cli.conftest import Call


def stored(home: Paths) -> dict[str, object]:
    return tomllib.loads(home.config.read_text())


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("desk.sandbox", "off", "off"),
        ("server.port", "9000", 9000),
        ("matrix.encrypted", "false", False),
        ("server.trusted_proxies", '["127.0.0.1", "10.0.0.0/8"]', ["127.0.0.1", "10.0.0.0/8"]),
        ("models.record", "/tmp/calls.jsonl", "/tmp/calls.jsonl"),
        ("desk.tool_servers.x.command", '["true"]', ["true"]),
    ],
)
def test_a_protected_setting_is_set_and_unset(home: Paths, call: Call, key: str, text: str, value: object) -> None:
    assert call("settings", "set", key, text).code == 0
    *tables, name = key.split(".")
    section = stored(home)
    for table in tables:
        section = section[table]  # type: ignore[assignment]
    assert section[name] == value
    if not key.startswith("desk.tool_servers"):
        assert f"{key} = " in call("settings", "list", key).out
        assert call("settings", "unset", key).code == 0
        assert "config.toml" not in call("settings", "list", key).out


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("no.such", "1"),
        ("server.port", "many"),
        ("server.trusted_proxies", '["*"]'),
        ("server.trusted_proxies", '["10.0.0.1/8"]'),
        ("models.api_key", "sk-live-12345678"),
        ("server.host", "0.0.0.0"),
        ("server.host", "::"),
    ],
)
def test_a_setting_that_is_not_valid_changes_nothing(home: Paths, call: Call, key: str, text: str) -> None:
    assert call("settings", "list").code == 0
    home.config.write_text("[story]\nretrieval_k = 2\n")
    before = home.config.read_text()
    refused = call("settings", "set", key, text)
    assert refused.code != 0 and "→" in refused.err and "sk-live" not in refused.err
    assert home.config.read_text() == before


def test_an_address_for_other_machines_needs_a_password_and_keeps_it(home: Paths, call: Call) -> None:
    home.config.write_text('[server]\npassword = "a long password"\n')
    assert call("settings", "set", "server.host", "0.0.0.0").code == 0
    assert call("settings", "unset", "server.password").code != 0
    assert call("password", "--remove").code != 0
    assert stored(home)["server"] == {"password": "a long password", "host": "0.0.0.0"}
    home.config.write_text('[server]\nhost = "0.0.0.0"\n')
    assert call("settings", "unset", "server.host").code == 0, "a file that is refused at the start can be repaired"


def test_a_folder_is_opened_as_a_workspace(home: Paths, process: Call, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    opened = process("draft", "open", str(folder), "--name", "Texts", samples=False)
    assert opened.code == 0 and "workspace" in opened.out
    assert process("draft", "open", str(tmp_path / "missing"), samples=False).code != 0
