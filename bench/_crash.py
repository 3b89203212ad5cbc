"""Killing a process with -9 at random points and starting it again, over and over: what every crash bench shares."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench._report import progress, say
from coterie.kernel import LogReader, View
from coterie.kernel.verify import verify

READY = b"ready\n"


def kill_over_and_over(
    kills: int,
    database: Path,
    views: Callable[[], Sequence[View]],
    spawn: Callable[[int], subprocess.Popen[bytes]],
    heard: Callable[[str], None],
    longest_s: float,
) -> int:
    """Kill what `spawn` starts, so often. Every line it told is handed on; how often `verify` failed is returned."""
    failures = 0
    lines = 0
    chance = random.Random(42)
    for kill in range(kills):
        process = spawn(kill)
        assert process.stdout is not None
        if process.stdout.readline() != READY:
            raise SystemExit(f"The process did not come up again after kill {kill}.")
        time.sleep(chance.random() ** 2 * longest_s)
        os.kill(process.pid, signal.SIGKILL)
        told = process.stdout.read().decode(errors="replace")
        for line in told[: told.rfind("\n") + 1].splitlines():
            heard(line)
            lines += 1
        process.wait()
        process.stdout.close()
        reader = LogReader(database)
        findings = verify(reader, list(views()))
        reader.close()
        if not findings.clean:
            failures += 1
            say(f"kill {kill}: {' '.join(findings.problems)}")
        progress(kill + 1, kills, f"kills, {lines} acknowledgements")
    return failures
