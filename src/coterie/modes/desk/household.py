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

from coterie.base.logging import get_logger

_log = get_logger(__name__)

_PATIENCE_S = 10.0
_AT_MOST = 4096


async def ended(told: int) -> None:
    """`told` is the file where bubblewrap said which processes it began: empty, if it failed before that."""
    said = os.pread(told, _AT_MOST, 0)
    if not said:
        return
    try:
        first = os.pidfd_open(json.loads(said)["child-pid"])
    except ProcessLookupError:
        return
    try:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
        await _gone(first)
    except TimeoutError:
        _log.warning("a command's processes do not end", waited_s=_PATIENCE_S)
    finally:
        os.close(first)


async def _gone(process: int) -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(process, gone.set)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await gone.wait()
    finally:
        loop.remove_reader(process)
