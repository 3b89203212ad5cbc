"""Moves the readers' half of loopback connections to another core.

On loopback the kernel delivers a packet within the sender's system call, so the server pays for the reader's half.
Where the system allows it (Linux, root, two cores), packets are received on another core meanwhile, and the calling
process stays on its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_RECEIVES = Path("/sys/class/net/lo/queues/rx-0/rps_cpus")


@contextmanager
def receive_on_other_core() -> Iterator[bool]:
    """Yields whether the system allowed it."""
    if sys.platform != "linux" or len(cores := sorted(os.sched_getaffinity(0))) < 2:
        yield False
        return
    try:
        before = _RECEIVES.read_text()
        _RECEIVES.write_text(f"{1 << cores[-1]:x}")
    except OSError:
        yield False
        return
    os.sched_setaffinity(0, {cores[0]})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, cores)
        _RECEIVES.write_text(before)


def run_on_any_core() -> None:
    """Allow the current process to run on every core again."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
