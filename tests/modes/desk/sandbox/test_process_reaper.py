"""What is left of a sandboxed command is ended, and nobody else. D16"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator

import pytest

from coterie.modes.desk.sandbox import process_reaper


@pytest.fixture
def told() -> Iterator[int]:
    descriptor = os.memfd_create("told", 0)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def neighbour() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def namespace(process: int) -> int:
    return os.stat(f"/proc/{process}/ns/pid").st_ino


async def test_d16_whoever_got_the_number_since_is_left_alone(told: int, neighbour: subprocess.Popen[bytes]) -> None:
    elsewhere = namespace(neighbour.pid) + 1
    os.write(told, json.dumps({"child-pid": neighbour.pid, "pid-namespace": elsewhere}).encode())
    await process_reaper.reap_processes(told)
    assert neighbour.poll() is None


async def test_d16_the_one_that_is_meant_is_gone_afterwards(told: int, neighbour: subprocess.Popen[bytes]) -> None:
    there = namespace(neighbour.pid)
    os.write(told, json.dumps({"child-pid": neighbour.pid, "pid-namespace": there}).encode())
    await process_reaper.reap_processes(told)
    assert neighbour.poll() == -9


async def test_d16_one_that_never_began_or_is_gone_is_nothing_to_wait_for(told: int) -> None:
    await process_reaper.reap_processes(told)
    with subprocess.Popen(["true"]) as process:
        process.wait()
    os.write(told, json.dumps({"child-pid": process.pid, "pid-namespace": 1}).encode())
    await process_reaper.reap_processes(told)
