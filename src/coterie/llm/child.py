"""Starts, watches and ends the embedded model's process, and says truthfully whether it still lives."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from coterie.base.logging import get_logger
from coterie.base.masking import redact
from coterie.llm.catalogue import EMBEDDED_MODEL
from coterie.llm.errors import ModelCrashed
from coterie.llm.settings import EmbeddedSettings

_log = get_logger(__name__)
_PASSED_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "SYSTEMROOT",
)


class EmbeddedProcess:
    def __init__(self, process: asyncio.subprocess.Process, url: str, key: str, stderr_tail: deque[str]) -> None:
        self._process = process
        self._stderr_tail = stderr_tail
        self.url = url
        self.key = key

    @classmethod
    async def start(cls, settings: EmbeddedSettings, weights: Path) -> EmbeddedProcess:
        key = secrets.token_urlsafe(24)
        redact.register(key)
        orders = {
            "weights": str(weights),
            "name": EMBEDDED_MODEL,
            "context": settings.context,
            "slots": settings.slots,
            "threads": settings.threads or _default_threads(),
            "memory_mb": settings.memory_mb,
            "key": key,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "coterie.llm.embedded_server",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
        last_words: deque[str] = deque(maxlen=20)
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("The process was started without its pipes.")
        listening = asyncio.create_task(_collect_stderr(process.stderr, last_words))
        listening.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            process.stdin.write(json.dumps(orders).encode() + b"\n")
            async with asyncio.timeout(settings.start_s):
                said = json.loads(await process.stdout.readline() or b"{}")
        except (TimeoutError, OSError, ValueError):
            said = {}
        except asyncio.CancelledError:
            _kill(process)
            raise
        if "url" not in said:
            _kill(process)
            await process.wait()
            _log.error("embedded_model_not_started", said=said.get("error"), last_words=list(last_words))
            raise ModelCrashed(
                f"The embedded model could not be loaded ({said.get('error') or 'it gave no reason'}).",
                "Check embedded.memory_mb and embedded.model in [models]; the log has its last words.",
            )
        _log.info("embedded_model_started", pid=process.pid, weights=weights.name)
        return cls(process, said["url"], key, last_words)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_exited(self) -> bool:
        return self._process.returncode is not None

    @property
    def memory_mb(self) -> float:
        import psutil

        try:
            return float(psutil.Process(self.pid).memory_info().rss / 1024**2)
        except psutil.NoSuchProcess:
            return 0.0

    async def responds(self, timeout_s: float) -> bool:
        import httpx

        try:
            async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
                return (await client.get(f"{self.url}/health")).status_code < 500
        except httpx.HTTPError:
            return False

    async def wait_for_exit(self) -> bool:
        """A broken connection is often noticed a moment before the death that broke it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await self._process.wait()
        if self.has_exited:
            _log.warning("embedded_model_died", code=self._process.returncode, last_words=list(self._stderr_tail))
        return self.has_exited

    async def kill(self) -> None:
        _kill(self._process)
        await self._process.wait()


def _environment() -> dict[str, str]:
    """What the process needs and no more: the keys that people keep in variables are none of its business."""
    kept = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    # Threads that spin while they wait crawl as soon as anything else runs: 5 instead of 35 tokens/s.
    return {**kept, "OMP_WAIT_POLICY": "passive"}


def _default_threads() -> int:
    """All but one: its threads wait for each other at every token, so a core that is busy elsewhere slows all."""
    return max(1, (os.cpu_count() or 2) - 1)


async def _collect_stderr(stream: asyncio.StreamReader, stderr_tail: deque[str]) -> None:
    while line := await stream.readline():
        stderr_tail.append(line.decode(errors="replace").rstrip())


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
