"""The doctor's checks of the machine: port, clock, programs, packages, providers."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from bench.lib.sample_events import sample_projections
from coterie.base.clock import ManualClock, SystemClock
from coterie.base.paths import Paths
from coterie.eventstore import Store
from coterie.llm.provider_health import ProviderHealth
from coterie.ops import doctor
from coterie.ops.doctor import Check, CheckResult, Doctor, RequiredPackage
from tests.ops.conftest import Live


def results(check: Check) -> list[CheckResult]:
    found = list(check())
    assert all(finding.fix for finding in found if finding.state != "ok")
    return found


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        (found,) = results(doctor.port_check(home, "127.0.0.1", number))
        assert (found.state, found.what) == ("bad", f"another program listens on 127.0.0.1:{number}")
        assert f"--port {number + 1}" in found.fix
    (found,) = results(doctor.port_check(home, "127.0.0.1", number))
    assert found.state == "ok"
    (found,) = results(doctor.port_check(home, "203.0.113.7", number))
    assert "[server] host" in found.fix
    assert results(doctor.port_check(home, "127.0.0.1", 0)) == []


def test_the_port_of_the_running_server_is_not_checked(store: Store, home: Paths) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        assert results(doctor.port_check(home, "127.0.0.1", own.getsockname()[1])) == []


@pytest.mark.parametrize(("behind", "said"), [(30, "30 minutes"), (300, "5 hours"), (60 * 24 * 9, "9 days")])
def test_a_clock_that_is_behind(store: Store, live: Live, home: Paths, behind: int, said: str) -> None:
    (last,) = live(1)
    store.close()
    (found,) = results(doctor.clock_check(home, ManualClock(last.ts - timedelta(minutes=behind))))
    assert found.state == "bad"
    assert found.what == f"it is {said} behind the newest event"
    assert "timedatectl" in found.fix
    (found,) = results(doctor.clock_check(home, ManualClock(last.ts)))
    assert found.state == "ok"


def test_no_compiler_and_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    found = results(doctor.tools_check(lambda _: None))
    assert [(finding.about, finding.state) for finding in found] == [("Compiler", "note"), ("Browser", "note")]
    assert "build-essential" in found[0].fix
    assert "apt install chromium" in found[1].fix
    assert results(doctor.tools_check(lambda name: f"/usr/bin/{name}")) == []


def test_a_required_package_that_is_not_installed() -> None:
    assert importlib.util.find_spec("no_such_part_of_it") is None
    packages = [
        RequiredPackage("no_such_part_of_it", "matrix", "Encryption on Matrix"),
        RequiredPackage("json", "", "everything"),
    ]
    (found,) = results(doctor.packages_check(packages))
    assert found.what == "Encryption on Matrix needs no_such_part_of_it, which is not installed"
    assert "coterie[matrix]" in found.fix
    (found,) = results(doctor.packages_check(packages[1:]))
    assert found.state == "ok"


def test_the_health_of_providers_is_reported() -> None:
    (found,) = results(
        doctor.providers_check(lambda: [ProviderHealth("cloud", "bad", "the key was refused", "Set it.")])
    )
    assert found == CheckResult("Models of cloud", "bad", "the key was refused", "Set it.")


_HOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("PRAGMA locking_mode = EXCLUSIVE")
other.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_database_locked_by_another_program(store: Store, live: Live, home: Paths) -> None:
    live(1)
    store.close()
    command = [sys.executable, "-c", _HOLD, str(home.database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        found = [one for one in Doctor(home, sample_projections(), SystemClock()).run() if one.about == "Database"]
        other.communicate()
    assert [finding.state for finding in found] == ["bad"]
    assert "lock" in found[0].what.lower()
    assert found[0].fix
