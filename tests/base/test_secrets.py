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
from coterie.base.secrets import Protection, SecretsStore, default_protection, passphrase_from_env

VALUE = "correct-horse-battery-staple-0001"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets.json"


@pytest.fixture
def store(path: Path) -> SecretsStore:
    return SecretsStore(path, lambda: "open sesame", "passphrase")


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
        SecretsStore(path, lambda: None, "passphrase").set("a", VALUE)


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


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """A keyring of this test alone."""
    held: dict[tuple[str, str], str] = {}
    module = types.ModuleType("keyring")
    module.get_password = lambda service, name: held.get((service, name))  # type: ignore[attr-defined]
    module.set_password = lambda service, name, value: held.update({(service, name): value})  # type: ignore[attr-defined]
    module.delete_password = lambda service, name: held.pop((service, name))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return held


@pytest.fixture
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)


def test_d19_a_new_store_uses_the_keyring_where_there_is_one(path: Path, keyring: dict[object, str]) -> None:
    SecretsStore(path, lambda: None).set("a", VALUE)
    assert SecretsStore(path, lambda: None).protection == "keyring"
    assert SecretsStore(path, lambda: None).get("a") == VALUE
    assert len(keyring) == 1
    keyring.clear()
    with pytest.raises(SecretsError, match="not in this machine's keyring"):
        SecretsStore(path, lambda: None).get("a")


@pytest.mark.usefixtures("no_keyring")
def test_d19_a_new_store_without_a_keyring_has_a_key_file_that_only_its_owner_reads(path: Path) -> None:
    store = SecretsStore(path, lambda: None)
    store.set("a", VALUE)
    key_file = path.with_suffix(".key")
    assert store.protection == "file"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert SecretsStore(path, lambda: None).get("a") == VALUE
    key_file.chmod(0o640)
    with pytest.raises(SecretsError, match="can be read by other users") as refused:
        SecretsStore(path, lambda: None).get("a")
    assert refused.value.fix == f"Restrict it: chmod 600 {key_file}"
    key_file.unlink()
    with pytest.raises(SecretsError, match="cannot be read"):
        SecretsStore(path, lambda: None).get("a")
    with pytest.raises(SecretsError, match="cannot be read"):  # and the store is not started anew
        SecretsStore(path, lambda: None).set("b", VALUE)


def test_d19_a_keyring_that_fails_is_not_chosen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("keyring")
    monkeypatch.setitem(sys.modules, "keyring", module)
    SecretsStore(path, lambda: None).set("a", VALUE)
    assert SecretsStore(path, lambda: None).protection == "file"


def test_d19_an_asked_keyring_without_the_extra_names_the_command(path: Path, no_keyring: None) -> None:
    with pytest.raises(MissingExtra, match=r"coterie\[keyring\]"):
        SecretsStore(path, lambda: None, "keyring").set("a", VALUE)


def test_d19_a_passphrase_in_the_environment_is_used_for_a_new_store() -> None:
    assert default_protection({"COTERIE_PASSPHRASE": "x"}) == "passphrase"
    assert default_protection({"COTERIE_PASSPHRASE_FILE": "x"}) == "passphrase"
    assert default_protection({}) is None


@pytest.mark.parametrize("before", ["keyring", "file", "passphrase"])
@pytest.mark.parametrize("after", ["keyring", "file", "passphrase"])
def test_d19_the_protection_can_be_changed_and_every_secret_stays(
    before: Protection, after: Protection, path: Path, keyring: dict[object, str]
) -> None:
    store = SecretsStore(path, lambda: "open sesame", before)
    store.set("a", VALUE, address="https://example.org")
    store.set("b", VALUE + "2", grants=("shell",))
    store.protect(after, "new words")
    again = SecretsStore(path, lambda: "new words")
    assert again.protection == after
    assert (again.get("a"), again.get("b", tool="shell")) == (VALUE, VALUE + "2")
    assert again.list()[0].address == "https://example.org"
    assert path.with_suffix(".key").exists() == (after == "file")
    assert len(keyring) == (after == "keyring")


def test_d19_the_address_of_a_secret_cannot_be_changed_in_the_file(store: SecretsStore, path: Path) -> None:
    store.set("a", VALUE, address="https://api.example.org/v1")
    data = json.loads(path.read_text())
    for address in ("https://elsewhere.example.org", ""):
        data["entries"]["a"]["address"] = address
        path.write_text(json.dumps(data))
        with pytest.raises(SecretsError, match="changed outside"):
            store.get("a")


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
