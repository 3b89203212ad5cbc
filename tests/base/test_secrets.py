"""The secrets store (D19)."""

from __future__ import annotations

import json
import stat
import sys
import types
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from coterie.base import secrets as vault_module
from coterie.base.config import Section, load_config
from coterie.base.errors import ConfigError, MissingExtra, SecretsError, WrongPassphrase
from coterie.base.secrets import SecretsStore, passphrase_from_env

VALUE = "correct-horse-battery-staple-0001"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets.json"


@pytest.fixture
def store(path: Path) -> SecretsStore:
    return SecretsStore(path, lambda: "open sesame")


def test_d19_a_secret_survives_a_restart_and_is_not_in_the_file(store: SecretsStore, path: Path) -> None:
    store.set("featherless", VALUE)
    assert SecretsStore(path, lambda: "open sesame").get("featherless") == VALUE
    assert VALUE not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_d19_argon2id_64_mb_3_passes_4_lanes(store: SecretsStore, path: Path) -> None:
    store.set("a", VALUE)
    source = json.loads(path.read_text())["key"]
    assert (source["from"], source["memory_kib"], source["passes"], source["lanes"]) == ("argon2id", 65536, 3, 4)


def test_d19_every_write_has_a_new_twelve_byte_nonce(store: SecretsStore, path: Path) -> None:
    nonces = set()
    for _ in range(20):
        store.set("a", VALUE)
        nonces.add(json.loads(path.read_text())["entries"]["a"]["nonce"])
    assert len(nonces) == 20
    assert {len(vault_module._from_base64(nonce)) for nonce in nonces} == {12}


def test_d19_a_wrong_passphrase_decrypts_and_changes_nothing(store: SecretsStore, path: Path) -> None:
    store.set("a", VALUE)
    before = path.read_bytes()
    stranger = SecretsStore(path, lambda: "close sesame")
    with pytest.raises(WrongPassphrase):
        stranger.get("a")
    with pytest.raises(WrongPassphrase):
        stranger.set("b", VALUE)
    assert path.read_bytes() == before


def test_d19_without_a_passphrase_the_error_says_how_to_give_one(path: Path) -> None:
    with pytest.raises(SecretsError, match="COTERIE_PASSPHRASE"):
        SecretsStore(path, lambda: None).set("a", VALUE)


@pytest.mark.parametrize(
    "change", [{"kind": "tool"}, {"grants": ["shell"]}, {"kind": "tool", "grants": ["shell"]}], ids=str
)
def test_d19_adding_a_grant_in_the_file_is_detected(change: dict[str, object], store: SecretsStore, path: Path) -> None:
    store.set("a", VALUE)
    data = json.loads(path.read_text())
    data["entries"]["a"].update(change)
    path.write_text(json.dumps(data))
    try:
        assert store.get("a", tool="shell") is None
        assert store.get("a") is None
    except SecretsError as error:
        assert "changed outside" in error.what


def test_d19_swapping_two_entries_is_detected(store: SecretsStore, path: Path) -> None:
    store.set("a", VALUE)
    store.set("b", VALUE + "2")
    data = json.loads(path.read_text())
    entries = data["entries"]
    entries["a"], entries["b"] = entries["b"], entries["a"]
    path.write_text(json.dumps(data))
    with pytest.raises(SecretsError, match="changed outside"):
        store.get("a")


def test_d19_a_system_secret_never_reaches_a_tool_and_a_tools_only_its_own(store: SecretsStore) -> None:
    store.set("provider_key", VALUE)
    store.set("mail_password", VALUE + "mail", grants=("send_mail",))
    assert store.get("mail_password", tool="send_mail") == VALUE + "mail"
    assert store.get("mail_password", tool="shell") is None
    assert store.get("provider_key", tool="send_mail") is None
    assert store.get("mail_password") is None


def test_listing_and_removing_show_no_value(store: SecretsStore, path: Path) -> None:
    store.set("b", VALUE, grants=("y", "x"))
    store.set("a", VALUE)
    locked = SecretsStore(path, lambda: None)
    assert [(info.name, info.kind, info.grants) for info in locked.list()] == [
        ("a", "system", ()),
        ("b", "tool", ("x", "y")),
    ]
    store.remove("a")
    assert [info.name for info in store.list()] == ["b"]
    with pytest.raises(SecretsError, match="no secret called a"):
        store.remove("a")


@pytest.mark.parametrize("name", ["", "two words", "../up", "1st", "x" * 65])
def test_a_bad_name_is_refused(name: str, store: SecretsStore) -> None:
    with pytest.raises(SecretsError, match="cannot be the name"):
        store.set(name, VALUE)


def test_a_damaged_file_is_reported_and_not_overwritten(store: SecretsStore, path: Path) -> None:
    path.write_text("{ half")
    with pytest.raises(SecretsError, match="cannot be read"):
        store.set("a", VALUE)
    assert path.read_text() == "{ half"


def test_d19_the_key_can_be_in_the_keyring(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[tuple[str, str], str] = {}
    keyring = types.ModuleType("keyring")
    keyring.get_password = lambda service, name: held.get((service, name))  # type: ignore[attr-defined]
    keyring.set_password = lambda service, name, value: held.update({(service, name): value})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    SecretsStore(path, lambda: None).set("a", VALUE, keyring=True)
    assert SecretsStore(path, lambda: None).get("a") == VALUE
    held.clear()
    with pytest.raises(SecretsError, match="not in this machine's keyring"):
        SecretsStore(path, lambda: None).get("a")


def test_without_the_keyring_extra_the_command_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(MissingExtra, match=r"coterie\[keyring\]"):
        SecretsStore(path, lambda: None).set("a", VALUE, keyring=True)


def test_the_passphrase_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "passphrase"
    file.write_text("from a file\n")
    assert passphrase_from_env({"COTERIE_PASSPHRASE": "given"}) == "given"
    assert passphrase_from_env({"COTERIE_PASSPHRASE_FILE": str(file)}) == "from a file"
    assert passphrase_from_env({}) is None
    with pytest.raises(SecretsError, match="cannot be read"):
        passphrase_from_env({"COTERIE_PASSPHRASE_FILE": str(tmp_path / "none")})


class _Models(Section):
    api_key: SecretStr | None = None


class _Root(BaseModel):
    models: _Models = _Models()


def test_d19_a_secret_reference_in_the_settings_is_resolved(store: SecretsStore, tmp_path: Path) -> None:
    store.set("featherless", VALUE)
    file = tmp_path / "config.toml"
    file.write_text('[models]\napi_key = "secret:featherless"\n')
    key = load_config(_Root, file=file, secret=lambda name, _: store.get(name)).settings.models.api_key
    assert key is not None
    assert key.get_secret_value() == VALUE
    file.write_text('[models]\napi_key = "secret:other"\n')
    with pytest.raises(ConfigError, match="coterie secrets set other"):
        load_config(_Root, file=file, secret=lambda name, _: store.get(name))
