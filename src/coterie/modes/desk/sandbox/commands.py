"""Running a program to its end, or to the end of our patience: its output is cut, its time is limited."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

OUTPUT_BYTES = 50_000
_AT_ONCE = 16_384


@dataclass(frozen=True)
class CommandResult:
    code: int
    output: str
    """What it wrote to either stream, in the order it came."""
    truncated: bool = False
    """There was more than is kept."""
    timed_out: bool = False


async def run_command(
    argv: Sequence[str], timeout_s: float, *, cwd: Path | None = None, pass_fds: Sequence[int] = ()
) -> CommandResult:
    """Nothing of our environment or our open files goes along. Cancelling it ends the program."""
    ours, theirs = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    kept = _Kept()
    timed_out = False
    try:
        async with asyncio.timeout(timeout_s), _reading(ours) as reader:
            await kept.read(reader)
            await process.wait()
    except TimeoutError:
        timed_out = True
    finally:
        await _end(process)
    return CommandResult(process.returncode or 0, kept.bytes.decode(errors="replace"), kept.cut, timed_out)


@asynccontextmanager
async def _reading(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """A pipe of our own: what a process leaves unread, or hands on to a child that stays, holds nobody up."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        yield reader
    finally:
        transport.close()


class _Kept:
    def __init__(self) -> None:
        self.bytes = bytearray()
        self.cut = False

    async def read(self, reader: asyncio.StreamReader) -> None:
        """All of it, so that the program is not held up, though not all of it is kept."""
        while chunk := await reader.read(_AT_ONCE):
            room = OUTPUT_BYTES - len(self.bytes)
            self.bytes += chunk[:room]
            self.cut = self.cut or len(chunk) > room
            # One that never pauses must not keep us from looking at the clock, nor from anybody else's work.
            await asyncio.sleep(0.005 if self.cut else 0)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await asyncio.shield(process.wait())
