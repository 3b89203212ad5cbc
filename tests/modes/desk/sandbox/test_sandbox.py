"""D16: without a working sandbox nothing runs, and the reason is reported."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest

from coterie.app import build_doctor
from coterie.base.paths import Paths
from coterie.modes.desk.errors import BadCommand, SandboxUnavailable
from coterie.modes.desk.sandbox.sandbox import Sandbox, seccomp_program
from coterie.modes.desk.settings import DeskSettings


def install_fake_bwrap(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)


BROKEN = {
    "exits with 1": "echo 'bwrap: No permissions to create new namespace' >&2; exit 1",
    "prints nothing": "exit 0",
    "crashes": "kill -SEGV $$",
    "confines nothing": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
    "claims success": "echo writes-workspace; exit 0; echo",
}


@pytest.mark.parametrize("how", BROKEN)
async def test_d16_a_broken_sandbox_refuses_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    install_fake_bwrap(tmp_path / "bin", BROKEN[how])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    sandbox = Sandbox(DeskSettings())
    for _ in range(20):
        with pytest.raises(SandboxUnavailable) as refused:
            await sandbox.run(["/bin/sh", "-c", f"touch {tmp_path}/ran"], tmp_path)
    assert refused.value.fix
    assert not (tmp_path / "ran").exists()
    assert (await sandbox.status()).state == "refused"


async def test_d16_the_error_of_a_broken_sandbox_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake_bwrap(tmp_path / "bin", BROKEN["exits with 1"])
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert "No permissions to create new namespace" in (await Sandbox(DeskSettings()).status()).reason


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
async def test_d16_a_machine_too_busy_for_the_probe_does_not_refuse_commands_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_fake_bwrap(tmp_path / "bin", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr("coterie.modes.desk.sandbox.sandbox._PROBE_TIMEOUT_S", 0.2)
    sandbox = Sandbox(DeskSettings())
    with pytest.raises(SandboxUnavailable, match="did not answer in time"):
        await sandbox.run(["true"], tmp_path)
    (tmp_path / "bin/bwrap").unlink()
    monkeypatch.setattr("coterie.modes.desk.sandbox.sandbox._PROBE_TIMEOUT_S", 15)
    assert (await sandbox.status()).state == "refused"  # not probed again at every command
    later = time.monotonic() + 100
    monkeypatch.setattr("time.monotonic", lambda: later)
    assert (await sandbox.status()).state == "confined"


async def test_d16_commands_at_the_same_time_share_one_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake_bwrap(tmp_path / "bin", f"echo probed >> {tmp_path}/probes; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    sandbox = Sandbox(DeskSettings())
    states = await asyncio.gather(*(sandbox.status() for _ in range(5)))
    assert {status.state for status in states} == {"refused"}
    assert (tmp_path / "probes").read_text() == "probed\n"


async def test_d16_without_bubblewrap_every_command_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="not installed") as refused:
        await Sandbox(DeskSettings()).run(["true"], tmp_path)
    assert "apt install bubblewrap" in refused.value.fix


async def test_d16_without_a_filter_for_the_processor_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(SandboxUnavailable, match="pdp11"):
        await Sandbox(DeskSettings()).run(["true"], tmp_path)


async def test_d16_off_runs_unconfined_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sandbox = Sandbox(DeskSettings(sandbox="off"))
    status = await sandbox.status()
    assert (status.state, bool(status.reason), bool(status.fix)) == ("off", True, True)
    ran = await sandbox.run(["/bin/sh", "-c", "pwd; echo $COTERIE_HOME"], tmp_path)
    assert ran.output == f"{tmp_path}\n\n"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
async def test_d16_empty_commands_and_nul_characters_are_refused(tmp_path: Path) -> None:
    sandbox = Sandbox(DeskSettings())
    for argv in ([], ["a\0b"]):
        with pytest.raises(BadCommand):
            await sandbox.run(argv, tmp_path)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_d16_every_jump_of_the_filter_stays_inside_it(machine: str) -> None:
    program = seccomp_program(machine)
    assert len(program) % 8 == 0
    steps = [program[at : at + 8] for at in range(0, len(program), 8)]
    for index, step in enumerate(steps):
        if step[0] in (0x15, 0x35, 0x45):
            assert max(step[2], step[3]) + index + 1 < len(steps)
    assert steps[-1][0] == 0x06


def test_d16_the_doctor_reports_the_reason_and_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = [result for result in build_doctor(paths).run() if result.about == "Sandbox"]
    assert (finding.state, "not installed" in finding.what, "apt install" in finding.fix) == ("note", True, True)
    paths.root.mkdir()
    paths.config.write_text('[desk]\nsandbox = "off"\n')
    (finding,) = [result for result in build_doctor(paths).run() if result.about == "Sandbox"]
    assert (finding.state, "unconfined" in finding.what) == ("bad", True)
