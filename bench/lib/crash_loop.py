"""Shared by the crash benches: kill a process with SIGKILL at random points and restart it."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from bench.lib.report import log, progress
from coterie.eventstore import LogReader, Projection
from coterie.eventstore.sqlite.verify import verify

READY = b"ready\n"


_fork_server = multiprocessing.get_context("forkserver")


class Forked:
    """A child process that starts with its modules imported, since it lives for about a second.

    `target` is called with the arguments and a connection for its output lines.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        _fork_server.set_forkserver_preload([target.__module__])
        reader, writer = _fork_server.Pipe(duplex=False)
        self._process = _fork_server.Process(target=target, args=(*arguments, writer), daemon=True)
        self._process.start()
        writer.close()
        self.stdout: IO[bytes] | None = os.fdopen(os.dup(reader.fileno()), "rb")
        reader.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def wait(self) -> None:
        self._process.join()

    def read_until_exit(self) -> None:
        assert self.stdout is not None
        self.stdout.read()
        self.stdout.close()
        self.wait()


def kill_repeatedly(
    kills: int,
    database: Path,
    projections: Callable[[], Sequence[Projection]],
    spawn: Callable[[int], subprocess.Popen[bytes] | Forked],
    on_line: Callable[[str], None],
    longest_s: float,
    verify_every: int = 1,
) -> int:
    """Kill the process that `spawn` starts repeatedly; returns how often `verify` failed.

    `on_line` receives every complete line of its output. Damage persists, so slow benches verify only every
    `verify_every` kills.
    """
    failures = 0
    lines = 0
    chance = random.Random(42)
    for kill in range(kills):
        process = spawn(kill)
        assert process.stdout is not None
        if process.stdout.readline() != READY:
            raise SystemExit(f"The process did not start after kill {kill}.")
        time.sleep(chance.random() ** 2 * longest_s)
        os.kill(process.pid, signal.SIGKILL)
        output = process.stdout.read().decode(errors="replace")
        for line in output[: output.rfind("\n") + 1].splitlines():
            on_line(line)
            lines += 1
        process.wait()
        process.stdout.close()
        progress(kill + 1, kills, f"kills, {lines} acknowledgements")
        if (kill + 1) % verify_every and kill + 1 < kills:
            continue
        reader = LogReader(database)
        findings = verify(reader, list(projections()))
        reader.close()
        if not findings.clean:
            failures += 1
            log(f"kill {kill}: {' '.join(findings.problems)}")
    return failures
