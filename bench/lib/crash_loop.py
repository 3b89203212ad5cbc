"""Killing a process with -9 at random points and starting it again, over and over: what every crash bench shares."""

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


_forks = multiprocessing.get_context("forkserver")


class Forked:
    """A process that begins with everything loaded: one that lives for a second should not spend it on importing.

    `live` is given its arguments and what to write its lines to.
    """

    def __init__(self, live: Callable[..., None], *arguments: Any) -> None:
        _forks.set_forkserver_preload([live.__module__])
        reader, writer = _forks.Pipe(duplex=False)
        self._process = _forks.Process(target=live, args=(*arguments, writer), daemon=True)
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

    def read_to_the_end(self) -> None:
        assert self.stdout is not None
        self.stdout.read()
        self.stdout.close()
        self.wait()


def kill_repeatedly(
    kills: int,
    database: Path,
    views: Callable[[], Sequence[Projection]],
    spawn: Callable[[int], subprocess.Popen[bytes] | Forked],
    heard: Callable[[str], None],
    longest_s: float,
    verify_every: int = 1,
) -> int:
    """Kill what `spawn` starts, so often. Every line it told is handed on; how often `verify` failed is returned.

    What a kill has damaged stays damaged: where verifying takes long, every so many kills will do.
    """
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
        progress(kill + 1, kills, f"kills, {lines} acknowledgements")
        if (kill + 1) % verify_every and kill + 1 < kills:
            continue
        reader = LogReader(database)
        findings = verify(reader, list(views()))
        reader.close()
        if not findings.clean:
            failures += 1
            log(f"kill {kill}: {' '.join(findings.problems)}")
    return failures
