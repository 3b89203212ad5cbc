"""A real homeserver for tests: Synapse from its wheel, on loopback, with a database of its own."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

PASSWORD = "quiet-harbour-81"

_LIMITS = (
    *("rc_message", "rc_registration", "rc_admin_redaction", "rc_room_creation", "rc_third_party_invite"),
    *("rc_media_create", "rc_presence", "rc_delayed_event_mgmt", "rc_reports", "rc_3pid_validation"),
)
_MANY = {"per_second": 10_000, "burst_count": 10_000}


class Synapse:
    def __init__(self, folder: Path, **overrides: Any) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._overrides = overrides
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def at(cls, url: str) -> Synapse:
        """A server that is already running."""
        synapse = cls(Path())
        synapse.url = url
        return synapse

    @property
    def database(self) -> Path:
        return self.folder / "homeserver.db"

    @property
    def log(self) -> str:
        return (self.folder / "synapse.log").read_text(errors="replace")

    def count_requests(self, *parts: str) -> int:
        """How many requests with one of these path parts are in its log."""
        lines = (line for line in self.log.splitlines() if "Processed request" in line)
        return sum(any(part in line for part in parts) for line in lines)

    def start(self) -> None:
        """Start and wait until it answers. The schema of the first start is kept for later ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "homeserver.yaml"
        config.write_text(json.dumps({**self._config(), **self._overrides}))
        command = [sys.executable, "-m", "synapse.app.homeserver", "-c", str(config)]
        if not (self.folder / "signing.key").exists():
            subprocess.run([*command, "--generate-keys"], cwd=self.folder, check=True, capture_output=True, timeout=240)
        if not self.database.exists() and _template().exists():
            shutil.copy(_template(), self.database)
        fresh = not self.database.exists()
        with (self.folder / "synapse.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        self._wait()
        if fresh:
            self._keep_template()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def slow_down(self, user: str, per_second: int, burst: int) -> None:
        """Apply the usual rate limits to this account."""
        admin = self.register(f"admin-{os.urandom(4).hex()}", admin=True)
        with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as client:
            identifier = {"type": "m.id.user", "user": admin}
            message = {"type": "m.login.password", "identifier": identifier, "password": PASSWORD}
            token = client.post("/_matrix/client/v3/login", json=message).json()["access_token"]
            limit = {"messages_per_second": per_second, "burst_count": burst}
            path, headers = f"/_synapse/admin/v1/users/{user}/override_ratelimit", {"Authorization": f"Bearer {token}"}
            client.post(path, json=limit, headers=headers).raise_for_status()

    def register(self, user: str, password: str = PASSWORD, *, admin: bool = False) -> str:
        """By the shared-secret admin call; returns the user id."""
        with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as client:
            nonce = client.get("/_synapse/admin/v1/register").json()["nonce"]
            message = b"\0".join(part.encode() for part in (nonce, user, password, "admin" if admin else "notadmin"))
            mac = hmac.new(b"registration secret", message, hashlib.sha1).hexdigest()
            body = {"nonce": nonce, "username": user, "password": password, "admin": admin, "mac": mac}
            answer = client.post("/_synapse/admin/v1/register", json=body)
            answer.raise_for_status()
            return str(answer.json()["user_id"])

    def query(self, sql: str, *bound: object) -> list[tuple[Any, ...]]:
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as rows:
            return list(rows.execute(sql, bound))

    def _config(self) -> dict[str, Any]:
        return {
            "server_name": "localhost",
            "pid_file": str(self.folder / "homeserver.pid"),
            "public_baseurl": f"{self.url}/",
            "listeners": [
                {
                    "port": self.port,
                    "bind_addresses": ["127.0.0.1"],
                    "type": "http",
                    "tls": False,
                    "resources": [{"names": ["client"]}],
                }
            ],
            "database": {"name": "sqlite3", "args": {"database": str(self.database)}},
            "registration_shared_secret": "registration secret",
            "macaroon_secret_key": "macaroon secret",
            "form_secret": "form secret",
            "signing_key_path": str(self.folder / "signing.key"),
            "media_store_path": str(self.folder / "media"),
            "max_upload_size": "60M",
            "report_stats": False,
            "trusted_key_servers": [],
            "federation_domain_whitelist": [],
            "presence": {"enabled": False},
            "bcrypt_rounds": 4,
            "caches": {"sync_response_cache_duration": "0s"},
            "rc_login": dict.fromkeys(("address", "account", "failed_attempts"), _MANY),
            "rc_joins": dict.fromkeys(("local", "remote"), _MANY),
            "rc_joins_per_room": _MANY,
            "rc_invites": dict.fromkeys(("per_room", "per_user", "per_issuer"), _MANY),
            **dict.fromkeys(_LIMITS, _MANY),
        }

    def _wait(self) -> None:
        ends = time.monotonic() + 280
        while time.monotonic() < ends:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"Synapse ended:\n{self.log[-3_000:]}")
            try:
                if httpx.get(f"{self.url}/health", trust_env=False, timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise RuntimeError(f"Synapse does not come up:\n{self.log[-3_000:]}")

    def _keep_template(self) -> None:
        half = _template().with_suffix(f".{os.getpid()}")
        with sqlite3.connect(self.database) as rows, sqlite3.connect(half) as copy:
            rows.backup(copy)
        half.replace(_template())


def _template() -> Path:
    """An empty database with the schema of the installed version."""
    from importlib.metadata import version

    name = f"coterie-synapse-{version('matrix-synapse')}-{os.getuid()}.db"
    return Path(tempfile.gettempdir()) / name


def _free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])
