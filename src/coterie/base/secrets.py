"""The secrets store: API keys and tokens in one file, each encrypted separately.

AES-256-GCM with a new nonce per write. The key is in the operating system's keyring, in a file of mode 0600 beside the
store, or comes from a passphrase (Argon2id, 64 MB). The name, kind, grants and address of a secret are authenticated
data, so entries cannot be swapped, given further grants or another address in the file. System secrets are never given
to tools; a tool's secret only to the tools it is granted to. A secret with an address is for that address only.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coterie.base.errors import MissingExtra, SecretsError, WrongPassphrase
from coterie.base.paths import write_atomic
from coterie.base.redaction import redact

_NONCE_BYTES = 12
_KEY_BYTES = 32
_MEMORY_KIB, _PASSES, _LANES = 64 * 1024, 3, 4
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_CHECK = "check"
_KEYRING_SERVICE = "coterie"

Kind = Literal["system", "tool"]
Protection = Literal["keyring", "file", "passphrase"]
"""Where the key of the store is."""
_PROTECTIONS: dict[str, Protection] = {"keyring": "keyring", "file": "file", "argon2id": "passphrase"}


@dataclass(frozen=True)
class SecretInfo:
    """The public data of a secret, readable without the key."""

    name: str
    kind: Kind
    grants: tuple[str, ...]
    address: str = ""
    """The address that the secret may be sent to; empty if it was stored without one."""


class SecretsStore:
    def __init__(self, path: Path, passphrase: Callable[[], str | None], protection: Protection | None = None) -> None:
        """`passphrase` is called at most once, and only if the store is protected by one.

        `protection` is for a store that does not exist yet; by default the keyring if there is one, else a key file.
        """
        self._path = path
        self._ask_passphrase = passphrase
        self._new_protection = protection
        self._key: bytes | None = None

    @property
    def exists(self) -> bool:
        return self._path.exists()

    @property
    def protection(self) -> Protection | None:
        """Where the key is; None if there is no store yet."""
        source = self._read().get("key")
        return None if source is None else _PROTECTIONS[source["from"]]

    def list(self) -> list[SecretInfo]:
        return [_secret_info(name, entry) for name, entry in sorted(self._read()["entries"].items())]

    def get(self, name: str, *, tool: str | None = None) -> str | None:
        """The value of a system secret or, for a tool, of a secret that is granted to it; None for any other."""
        entry = self._read()["entries"].get(name)
        if entry is None:
            return None
        allowed = entry["kind"] == "system" if tool is None else entry["kind"] == "tool" and tool in entry["grants"]
        return self._decrypt_and_register(name, entry) if allowed else None

    def set(self, name: str, value: str, *, grants: tuple[str, ...] = (), address: str = "") -> None:
        """Store a secret; with `grants` it is a tool's, with `address` it is for that address only."""
        if not _NAME.fullmatch(name):
            raise SecretsError(
                f"{name!r} cannot be the name of a secret.", "Use letters, digits, dots, dashes and underscores."
            )
        if not value:
            raise SecretsError("An empty secret was given.", "Give it a value, or remove it: coterie secrets rm")
        redact.register(value)
        with self._modify() as data:
            data["entries"][name] = self._entry(
                value, SecretInfo(name, "tool" if grants else "system", tuple(sorted(grants)), address)
            )

    def remove(self, name: str) -> None:
        with self._modify() as data:
            if data["entries"].pop(name, None) is None:
                raise SecretsError(f"There is no secret called {name}.", "See them with: coterie secrets list")

    def protect(self, protection: Protection, new_passphrase: str = "") -> None:
        """Encrypt all secrets anew with a key that is kept in another place, or with another passphrase."""
        if protection == self.protection != "passphrase":
            return
        with self._modify() as data:
            values = {name: self._decrypt(entry, _secret_info(name, entry)) for name, entry in data["entries"].items()}
            before = dict(data["key"])
            if protection == "passphrase":
                self._ask_passphrase = lambda: new_passphrase
            self._use_new_key(data, protection)
            for name, value in values.items():
                data["entries"][name] = self._entry(value, _secret_info(name, data["entries"][name]))
        self._forget_key(before)

    def _entry(self, value: str, info: SecretInfo) -> dict[str, Any]:
        address = {"address": info.address} if info.address else {}
        return {"kind": info.kind, "grants": list(info.grants), **address, **self._encrypt(value, info)}

    def _decrypt_and_register(self, name: str, entry: Mapping[str, Any]) -> str:
        value = self._decrypt(entry, _secret_info(name, entry))
        redact.register(value)
        return value

    def _encrypt(self, value: str, info: SecretInfo) -> dict[str, str]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = AESGCM(self._get_key()).encrypt(nonce, value.encode(), _authenticated_data(info))
        return {"nonce": _to_base64(nonce), "sealed": _to_base64(sealed)}

    def _decrypt(self, entry: Mapping[str, Any], info: SecretInfo) -> str:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key = self._get_key()
        try:
            return (
                AESGCM(key)
                .decrypt(_from_base64(entry["nonce"]), _from_base64(entry["sealed"]), _authenticated_data(info))
                .decode()
            )
        except InvalidTag:
            raise SecretsError(
                f"The secret {info.name} was changed outside of Coterie, or the file is damaged.",
                f"Store it again: coterie secrets set {info.name}",
            ) from None

    def _get_key(self) -> bytes:
        if self._key is None:
            data = self._read()
            self._key = self._derive_key(data["key"])
            self._check_key(data)
        return self._key

    def _check_key(self, data: Mapping[str, Any]) -> None:
        try:
            self._decrypt(data[_CHECK], SecretInfo(_CHECK, "system", ()))
        except SecretsError:
            self._key = None
            if _PROTECTIONS[data["key"]["from"]] != "passphrase":
                raise SecretsError(
                    "The key does not open the secrets store.",
                    f"Restore {self._path.name} and {self._key_file.name} from the same backup, or delete both and "
                    "enter the keys again.",
                ) from None
            raise WrongPassphrase(
                "The passphrase does not open the secrets store.",
                "Try again. If it is lost, delete the file and store the secrets again.",
            ) from None

    @property
    def _key_file(self) -> Path:
        return self._path.with_suffix(".key")

    def _derive_key(self, source: Mapping[str, Any]) -> bytes:
        if source["from"] == "file":
            return self._read_key_file()
        if source["from"] == "keyring":
            stored = _keyring().get_password(_KEYRING_SERVICE, source["id"])
            if stored is None:
                raise SecretsError(
                    "The key to the secrets store is not in this machine's keyring.",
                    "Open the keyring, or delete the store and set the secrets again.",
                )
            return _from_base64(stored)
        from argon2.low_level import Type, hash_secret_raw

        return hash_secret_raw(
            self._passphrase().encode(),
            _from_base64(source["salt"]),
            time_cost=source["passes"],
            memory_cost=source["memory_kib"],
            parallelism=source["lanes"],
            hash_len=_KEY_BYTES,
            type=Type.ID,
        )

    def _read_key_file(self) -> bytes:
        try:
            mode = self._key_file.stat().st_mode
            if os.name == "posix" and mode & 0o077:
                raise SecretsError(
                    f"The key of the secrets store, {self._key_file}, can be read by other users.",
                    f"Restrict it: chmod 600 {self._key_file}",
                )
            return _from_base64(self._key_file.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise SecretsError(
                f"The key of the secrets store, {self._key_file}, cannot be read "
                f"({getattr(error, 'strerror', None) or 'it is damaged'}).",
                f"Restore it from a backup, or delete {self._path.name} and enter the keys again.",
            ) from None

    def _use_new_key(self, data: dict[str, Any], protection: Protection | None) -> None:
        data["key"] = self._new_key_source(protection)
        self._key = self._derive_key(data["key"])
        data[_CHECK] = self._encrypt("coterie", SecretInfo(_CHECK, "system", ()))

    def _new_key_source(self, protection: Protection | None) -> dict[str, Any]:
        if protection is None:
            protection = "keyring" if _has_keyring() else "file"
        if protection == "keyring":
            identity = secrets.token_hex(8)
            _keyring().set_password(_KEYRING_SERVICE, identity, _to_base64(secrets.token_bytes(_KEY_BYTES)))
            return {"from": "keyring", "id": identity}
        if protection == "file":
            write_atomic(self._key_file, _to_base64(secrets.token_bytes(_KEY_BYTES)).encode(), mode=0o600)
            return {"from": "file"}
        return {
            "from": "argon2id",
            "salt": _to_base64(secrets.token_bytes(16)),
            "memory_kib": _MEMORY_KIB,
            "passes": _PASSES,
            "lanes": _LANES,
        }

    def _forget_key(self, source: Mapping[str, Any]) -> None:
        """Remove a key that nothing is encrypted with any more."""
        if source["from"] == "file":
            self._key_file.unlink(missing_ok=True)
        elif source["from"] == "keyring":
            with suppress(Exception):  # a leftover entry opens nothing
                _keyring().delete_password(_KEYRING_SERVICE, source["id"])

    def _passphrase(self) -> str:
        passphrase = self._ask_passphrase()
        if not passphrase:
            raise SecretsError(
                "The secrets store needs its passphrase.",
                "Set COTERIE_PASSPHRASE, or COTERIE_PASSPHRASE_FILE to a file that holds it.",
            )
        redact.register(passphrase)
        return passphrase

    def _read(self) -> dict[str, Any]:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"version": 1, "entries": {}}
        except (OSError, ValueError) as error:
            raise SecretsError(
                f"The secrets store {self._path} cannot be read: {error}.", "Check it, or restore it from a backup."
            ) from None
        if not isinstance(data, dict) or data.get("version") != 1:
            raise SecretsError(f"{self._path} is not a secrets store of this version.", "Upgrade Coterie.")
        return data

    @contextmanager
    def _modify(self) -> Iterator[dict[str, Any]]:
        """Read the file, let the caller change it, and replace it atomically, under a lock."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _file_lock(self._path.with_suffix(".lock")):
            data = self._read()
            if "key" not in data:
                self._use_new_key(data, self._new_protection)
            self._get_key()
            yield data
            write_atomic(self._path, json.dumps(data, indent=1).encode(), mode=0o600)


def passphrase_from_env(environ: Mapping[str, str]) -> str | None:
    """The passphrase from a variable, or from the file that a variable names."""
    if passphrase := environ.get("COTERIE_PASSPHRASE"):
        return passphrase
    if file := environ.get("COTERIE_PASSPHRASE_FILE"):
        try:
            return Path(file).read_text(encoding="utf-8").rstrip("\n")
        except OSError as error:
            raise SecretsError(
                f"The passphrase file {file} cannot be read ({error.strerror}).", "Correct COTERIE_PASSPHRASE_FILE."
            ) from None
    return None


def default_protection(environ: Mapping[str, str]) -> Protection | None:
    """How a new store is protected: by a passphrase if the environment has one, else by the default."""
    return "passphrase" if environ.get("COTERIE_PASSPHRASE") or environ.get("COTERIE_PASSPHRASE_FILE") else None


def _has_keyring() -> bool:
    """Whether the system has a keyring that keeps a value without asking somebody."""
    try:
        import keyring

        name = f"check-{secrets.token_hex(4)}"
        keyring.set_password(_KEYRING_SERVICE, name, name)
        kept = bool(keyring.get_password(_KEYRING_SERVICE, name) == name)
        keyring.delete_password(_KEYRING_SERVICE, name)
    except Exception:  # not installed, no backend, locked: each library reports it in its own way
        return False
    return kept


def _keyring() -> Any:
    try:
        import keyring
    except ImportError:
        raise MissingExtra("keyring", "Keeping the key in this machine's keyring") from None
    return keyring


def _secret_info(name: str, entry: Mapping[str, Any]) -> SecretInfo:
    return SecretInfo(name, entry["kind"], tuple(entry["grants"]), entry.get("address", ""))


def _authenticated_data(info: SecretInfo) -> bytes:
    """The authenticated data of a secret: decryption fails if any of it was changed in the file."""
    return json.dumps([info.name, info.kind, list(info.grants), *([info.address] if info.address else [])]).encode()


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _to_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text)
