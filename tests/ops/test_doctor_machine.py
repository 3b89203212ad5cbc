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
from tests.ops.conftest import AppendSample


def run_check(check: Check) -> list[CheckResult]:
    results = list(check())
    assert all(result.fix for result in results if result.state != "ok")
    return results


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    with socket.create_server(("127.0.0.1", 0)) as other:
        number = other.getsockname()[1]
        (result,) = run_check(doctor.port_check(home, "127.0.0.1", number))
        assert (result.state, result.what) == ("bad", f"another program listens on 127.0.0.1:{number}")
        assert f"--port {number + 1}" in result.fix
    (result,) = run_check(doctor.port_check(home, "127.0.0.1", number))
    assert result.state == "ok"
    (result,) = run_check(doctor.port_check(home, "203.0.113.7", number))
    assert "[server] host" in result.fix
    assert run_check(doctor.port_check(home, "127.0.0.1", 0)) == []


def test_the_port_of_the_running_server_is_not_checked(store: Store, home: Paths) -> None:
    with socket.create_server(("127.0.0.1", 0)) as own:
        assert run_check(doctor.port_check(home, "127.0.0.1", own.getsockname()[1])) == []


@pytest.mark.parametrize(("behind", "said"), [(30, "30 minutes"), (300, "5 hours"), (60 * 24 * 9, "9 days")])
def test_a_clock_that_is_behind(store: Store, append_sample: AppendSample, home: Paths, behind: int, said: str) -> None:
    (last,) = append_sample(1)
    store.close()
    (result,) = run_check(doctor.clock_check(home, ManualClock(last.ts - timedelta(minutes=behind))))
    assert result.state == "bad"
    assert result.what == f"it is {said} behind the newest event"
    assert "timedatectl" in result.fix
    (result,) = run_check(doctor.clock_check(home, ManualClock(last.ts)))
    assert result.state == "ok"


def test_no_compiler_and_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    results = run_check(doctor.tools_check(lambda _: None))
    assert [(result.about, result.state) for result in results] == [("Compiler", "note"), ("Browser", "note")]
    assert "build-essential" in results[0].fix
    assert "apt install chromium" in results[1].fix
    assert run_check(doctor.tools_check(lambda name: f"/usr/bin/{name}")) == []


def test_a_required_package_that_is_not_installed() -> None:
    assert importlib.util.find_spec("no_such_part_of_it") is None
    packages = [
        RequiredPackage("no_such_part_of_it", "matrix", "Encryption on Matrix"),
        RequiredPackage("json", "", "everything"),
    ]
    (result,) = run_check(doctor.packages_check(packages))
    assert result.what == "Encryption on Matrix needs no_such_part_of_it, which is not installed"
    assert "coterie[matrix]" in result.fix
    (result,) = run_check(doctor.packages_check(packages[1:]))
    assert result.state == "ok"


def test_the_health_of_providers_is_reported() -> None:
    (result,) = run_check(
        doctor.providers_check(lambda: [ProviderHealth("cloud", "bad", "the key was refused", "Set it.")])
    )
    assert result == CheckResult("Models of cloud", "bad", "the key was refused", "Set it.")


_HOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("PRAGMA locking_mode = EXCLUSIVE")
other.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_database_locked_by_another_program(store: Store, append_sample: AppendSample, home: Paths) -> None:
    append_sample(1)
    store.close()
    command = [sys.executable, "-c", _HOLD, str(home.database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        results = [item for item in Doctor(home, sample_projections(), SystemClock()).run() if item.about == "Database"]
        other.communicate()
    assert [result.state for result in results] == ["bad"]
    assert "lock" in results[0].what.lower()
    assert results[0].fix
