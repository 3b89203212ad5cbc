"""Ten broken installations, reproduced where possible: `coterie doctor` reports each with its fix."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import pytest

from bench.lib.sample_events import SampleTurn, sample_projections
from coterie.base.clock import ManualClock
from coterie.base.paths import Paths
from coterie.eventstore import NewEvent, Store
from tests.cli.conftest import Call


@pytest.fixture
def bare_env(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without optional programs."""
    empty = tmp_path / "bin"
    empty.mkdir()
    return {"PATH": str(empty), "CHROMIUM": ""}


def check_doctor(call: Call, *expected: str, code: int = 0, environ: dict[str, str] | None = None) -> None:
    answer = call("doctor", environ=environ)
    assert answer.code == code, answer.out
    for line in expected:
        assert line in answer.out


def test_no_compiler(sample_home: Paths, process: Call, bare_env: dict[str, str]) -> None:
    check_doctor(process, "· Compiler: there is none", "→ Install one: apt install build-essential", environ=bare_env)


def test_no_bubblewrap(sample_home: Paths, process: Call, bare_env: dict[str, str]) -> None:
    check_doctor(process, "· Sandbox: bubblewrap (bwrap) is not installed.", "apt install bubblewrap", environ=bare_env)


def test_no_browser_for_the_tests(sample_home: Paths, process: Call, bare_env: dict[str, str]) -> None:
    check_doctor(process, "· Browser: there is no Chromium", "apt install chromium", environ=bare_env)


def test_the_port_is_taken(sample_home: Paths, process: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        sample_home.config.write_text(f"[server]\nport = {port}\n")
        expected = f"✗ Port: another program listens on 127.0.0.1:{port}"
        check_doctor(process, expected, "→ Stop that program, or use another port: coterie serve --port", code=1)


def test_the_disk_is_full(sample_home: Paths, process: Call) -> None:
    environ = {"SAMPLE_FREE_MB": "12"}
    check_doctor(
        process, "✗ Disk: only 12 MB are free", "→ Free some space, or move COTERIE_HOME.", code=1, environ=environ
    )


def test_the_key_is_wrong(sample_home: Paths, process: Call) -> None:
    with refusing_server() as address:
        sample_home.config.write_text(
            f"[models.providers.example]\nbase_url = '{address}'\napi_key = 'sk-wrong'\n"
            "[models.roles]\nnarrative = 'example/large'\n"
        )
        host = urlsplit(address).netloc
        expected = f"✗ Models of example: {host} no longer accepts the saved key (HTTP 401)"
        check_doctor(process, expected, "→ Enter a new one in Settings → Models.", code=1)
    assert "sk-wrong" not in process("doctor").out


def test_the_database_is_locked_by_another_program(sample_home: Paths, process: Call) -> None:
    holding = f"""
import apsw
held = apsw.Connection({str(sample_home.database)!r})
held.execute("PRAGMA locking_mode = EXCLUSIVE"); held.execute("BEGIN EXCLUSIVE")
print("held", flush=True); input()
"""
    other = subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        check_doctor(process, "✗ Database: Another program keeps the database", "→ Stop it and try again", code=1)
    finally:
        other.communicate(b"\n")


def test_the_schema_is_old(sample_home: Paths, process: Call) -> None:
    connection = apsw.Connection(str(sample_home.database))
    connection.execute("DELETE FROM migration WHERE name = 'm003_table_names'; ALTER TABLE projection RENAME TO view")
    connection.close()
    check_doctor(process, "· Schema: written by an older Coterie", "→ Take a backup first, with `coterie backup`")


def test_an_extra_is_missing(sample_home: Paths, process: Call) -> None:
    sample_home.config.write_text("[desk.tool_servers.notes]\ncommand = ['notes-server']\n")
    expected = "✗ Package: [desk.tool_servers] needs mcp, which is not installed"
    check_doctor(process, expected, "→ pip install 'coterie[mcp]'", code=1, environ={"SAMPLE_WITHOUT": "mcp"})
    check_doctor(process, "✓ Packages: everything that the settings need is installed")


def test_the_clock_is_skewed(sample_home: Paths, process: Call) -> None:
    store = Store.open(
        sample_home.database, projections=sample_projections(), clock=ManualClock(datetime.now(UTC) + timedelta(days=9))
    )
    store.append_blocking(
        [NewEvent("room:a", SampleTurn(turn="late", speaker="you", text="from tomorrow"), actor="you")]
    )
    store.close()
    expected = "✗ Clock: it is 8 days behind the newest event"
    check_doctor(process, expected, "timedatectl set-ntp true", code=1)


@contextmanager
def refusing_server() -> Iterator[str]:
    """A provider that refuses every key."""

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(401)

        def log_message(self, *arguments: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
