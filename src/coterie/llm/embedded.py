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
from coterie.llm.child import Child
from coterie.llm.errors import ModelCrashed, ModelUnavailable
from coterie.llm.hosted import Hosted, import_libraries
from coterie.llm.line import Line
from coterie.llm.messages import Chunk, Request
from coterie.llm.settings import EmbeddedSettings
from coterie.llm.switch import check_real_requests
from coterie.llm.weights import find_weights

_ANSWERS_WITHIN_S = 5.0


@dataclass
class _Running:
    child: Child
    client: Hosted
    heard: int = 0
    """Chunks received from it in all: the sign of life that costs nothing."""


class Embedded:
    name = "embedded"

    def __init__(self, settings: EmbeddedSettings, clock: Clock | None = None) -> None:
        self._settings = settings
        self._line = Line(settings.slots, clock or SystemClock())
        self._starting = asyncio.Lock()
        self._running: _Running | None = None
        self._unloading: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        check_real_requests(f"{self.name}/{request.model}")
        async with self._line.place(request.priority, request.owner):
            self._stay_loaded()
            try:
                running = await self._start()
                watch = asyncio.create_task(self._watch(running))
                try:
                    async with aclosing(running.client.stream(request)) as chunks:
                        async for chunk in chunks:
                            running.heard += 1
                            yield chunk
                except ModelUnavailable as error:
                    if await running.child.died_just_now():
                        raise ModelCrashed(
                            "The embedded model's process died in the middle of its answer.",
                            "Ask again: it is started anew by the next request.",
                        ) from error
                    raise
                finally:
                    watch.cancel()
            finally:
                self._unload_later()

    @property
    def child(self) -> Child | None:
        """The process, while it runs."""
        return self._running.child if self._running and not self._running.child.dead else None

    async def close(self) -> None:
        self._stay_loaded()
        await self._end()
        await asyncio.gather(*self._ending)

    async def _start(self) -> _Running:
        async with self._starting:
            if self._running is not None and self._running.child.dead:
                await self._end()
            if self._running is None:
                weights = find_weights(self._settings.model)
                # Loading the model and importing the client's libraries take a second or more each: side by side.
                child, _ = await asyncio.gather(
                    Child.start(self._settings, weights), asyncio.to_thread(import_libraries, "openai")
                )
                self._running = _Running(child, Hosted(_spec(child)))
            return self._running

    async def _watch(self, running: _Running) -> None:
        """Silence is not death (a long prompt is being read), but a process that answers nobody is hung."""
        while not running.child.dead:
            heard = running.heard
            await asyncio.sleep(self._settings.stall_s)
            if running.heard == heard and not await running.child.responds(_ANSWERS_WITHIN_S):
                # Its death breaks the connections of every call that waits on it, which is how they learn.
                await running.child.end()

    async def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            await running.client.close()
            await running.child.end()

    def _stay_loaded(self) -> None:
        if self._unloading is not None:
            self._unloading.cancel()
            self._unloading = None

    def _unload_later(self) -> None:
        self._stay_loaded()
        loop = asyncio.get_running_loop()
        self._unloading = loop.call_later(self._settings.idle_unload_s, self._unload)

    def _unload(self) -> None:
        if self._line.idle:
            task = asyncio.create_task(self._end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


def _spec(child: Child) -> ProviderSpec:
    return ProviderSpec(
        name=Embedded.name,
        protocol="openai",
        base_url=f"{child.url}/v1",
        api_key=SecretStr(child.key),
        native_schema=True,
        free=True,
        flat_rate=False,
        first_token_s=0,
        idle_s=0,
    )
