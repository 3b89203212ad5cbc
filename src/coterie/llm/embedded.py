"""A real model with no key and no network: SmolLM2 in a process of its own, started by the first request.

If that process crashes or hangs, the call that was under way ends with a `ModelCrashed` that says so, and the next one
starts a fresh process; the application never goes down with it. Unused for a while, it leaves memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from pydantic import SecretStr

from coterie.base.clock import Clock, SystemClock
from coterie.llm.catalogue import ProviderSpec
from coterie.llm.child import EmbeddedProcess
from coterie.llm.errors import ModelCrashed, ModelUnavailable
from coterie.llm.hosted import HostedProvider, import_libraries
from coterie.llm.line import FairQueue
from coterie.llm.messages import Chunk, CompletionRequest
from coterie.llm.settings import EmbeddedSettings
from coterie.llm.switch import check_real_requests
from coterie.llm.weights import find_weights

_HEALTH_TIMEOUT_S = 5.0


@dataclass
class _RunningModel:
    process: EmbeddedProcess
    client: HostedProvider
    chunks_received: int = 0
    """Chunks received from it in all: the sign of life that costs nothing."""


class EmbeddedProvider:
    name = "embedded"

    def __init__(self, settings: EmbeddedSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._queue = FairQueue(settings.slots, clock or SystemClock())
        self._start_lock = asyncio.Lock()
        self._running: _RunningModel | None = None
        self._unload_timer: asyncio.TimerHandle | None = None
        self._stop_tasks: set[asyncio.Task[None]] = set()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        check_real_requests(f"{self.name}/{request.model}")
        async with self._queue.slot(request.priority, request.owner):
            self._cancel_unload()
            try:
                running = await self._start()
                watch = asyncio.create_task(self._kill_if_hung(running))
                try:
                    async with aclosing(running.client.stream(request)) as chunks:
                        async for chunk in chunks:
                            running.chunks_received += 1
                            yield chunk
                except ModelUnavailable as error:
                    if await running.process.wait_for_exit():
                        raise ModelCrashed(
                            "The embedded model's process died in the middle of its answer.",
                            "Ask again: it is started anew by the next request.",
                        ) from error
                    raise
                finally:
                    watch.cancel()
            finally:
                self._schedule_unload()

    @property
    def process(self) -> EmbeddedProcess | None:
        """The process, while it runs."""
        return self._running.process if self._running and not self._running.process.has_exited else None

    async def close(self) -> None:
        self._cancel_unload()
        await self._stop_current()
        await asyncio.gather(*self._stop_tasks)

    async def _start(self) -> _RunningModel:
        async with self._start_lock:
            if self._running is not None and self._running.process.has_exited:
                await self._stop_current()
            if self._running is None:
                weights = find_weights(self._settings.model)
                # Loading the model and importing the client's libraries take a second or more each: side by side.
                child, _ = await asyncio.gather(
                    EmbeddedProcess.start(self._settings, weights), asyncio.to_thread(import_libraries, "openai")
                )
                self._running = _RunningModel(child, HostedProvider(_local_spec(child)))
            return self._running

    async def _kill_if_hung(self, running: _RunningModel) -> None:
        """Silence is not death (a long prompt is being read), but a process that answers nobody is hung."""
        while not running.process.has_exited:
            heard = running.chunks_received
            await asyncio.sleep(self._settings.stall_s)
            if running.chunks_received == heard and not await running.process.responds(_HEALTH_TIMEOUT_S):
                # Its death breaks the connections of every call that waits on it, which is how they learn.
                await running.process.kill()

    async def _stop_current(self) -> None:
        # Let go of it first: whoever comes while it ends starts a fresh one.
        running, self._running = self._running, None
        if running is not None:
            await _stop(running)

    def _cancel_unload(self) -> None:
        if self._unload_timer is not None:
            self._unload_timer.cancel()
            self._unload_timer = None

    def _schedule_unload(self) -> None:
        self._cancel_unload()
        loop = asyncio.get_running_loop()
        self._unload_timer = loop.call_later(self._settings.idle_unload_s, self._unload)

    def _unload(self) -> None:
        if self._queue.idle and self._running is not None:
            running, self._running = self._running, None
            task = asyncio.create_task(_stop(running))
            self._stop_tasks.add(task)
            task.add_done_callback(self._stop_tasks.discard)


async def _stop(running: _RunningModel) -> None:
    await running.client.close()
    await running.process.kill()


def _local_spec(child: EmbeddedProcess) -> ProviderSpec:
    return ProviderSpec(
        name=EmbeddedProvider.name,
        protocol="openai",
        base_url=f"{child.url}/v1",
        api_key=SecretStr(child.key),
        native_schema=True,
        free=True,
        flat_rate=False,
        first_token_s=0,
        idle_s=0,
    )
