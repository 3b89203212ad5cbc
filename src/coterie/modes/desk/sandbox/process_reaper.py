"""All that a sandboxed command started, ended and seen to be gone before anybody goes on.

bubblewrap is back as soon as the command itself is done, and what it left running is ended a moment later. Within
that moment it may still write to the workspace. The first process of the sandbox is gone only after all the others.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from coterie.base.logging import get_logger

_log = get_logger(__name__)

_PATIENCE_S = 10.0
_AT_MOST = 4096


async def reap_processes(told: int) -> None:
    """`told` is the file where bubblewrap said which processes it began: empty, if it failed before that."""
    said = os.pread(told, _AT_MOST, 0)
    if not said:
        return
    began = json.loads(said)
    try:
        first = os.pidfd_open(began["child-pid"])
    except ProcessLookupError:
        return
    try:
        if _lives_in(began["child-pid"], began["pid-namespace"]):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(first, signal.SIGKILL)
            await _gone(first)
    except TimeoutError:
        _log.warning("a command's processes do not end", waited_s=_PATIENCE_S)
    finally:
        os.close(first)


def _lives_in(process: int, namespace: int) -> bool:
    """Numbers are given again: whoever has this one now may be a stranger."""
    try:
        return Path(f"/proc/{process}/ns/pid").stat().st_ino == namespace
    except FileNotFoundError:
        return False


async def _gone(process: int) -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(process, gone.set)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await gone.wait()
    finally:
        loop.remove_reader(process)
