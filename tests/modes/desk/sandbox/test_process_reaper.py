"""Leftover processes of a sandboxed command are killed, and no others."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from coterie.modes.desk.sandbox.sandbox import reap_processes


@pytest.fixture
def info() -> Iterator[int]:
    descriptor = os.memfd_create("info", 0)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def namespace(process: int) -> int:
    return os.stat(f"/proc/{process}/ns/pid").st_ino


async def test_d16_another_process_with_a_reused_id_is_not_killed(info: int, process: subprocess.Popen[bytes]) -> None:
    other_namespace = namespace(process.pid) + 1
    os.write(info, json.dumps({"child-pid": process.pid, "pid-namespace": other_namespace}).encode())
    await reap_processes(info)
    assert process.poll() is None


async def test_d16_the_leftover_process_is_gone_afterwards(info: int, process: subprocess.Popen[bytes]) -> None:
    os.write(info, json.dumps({"child-pid": process.pid, "pid-namespace": namespace(process.pid)}).encode())
    await reap_processes(info)
    assert process.poll() == -9


async def test_d16_processes_that_never_started_or_ended_are_ignored(info: int) -> None:
    await reap_processes(info)
    with subprocess.Popen(["true"]) as process:
        process.wait()
    os.write(info, json.dumps({"child-pid": process.pid, "pid-namespace": 1}).encode())
    await reap_processes(info)
