"""Plays a tape back in a provider's place: a recorded run byte for byte, or hand-written answers for a test.

A recorded request is answered by what was recorded for exactly that request, in the order it happened; a scripted line
answers the next request that it fits. `requests` keeps what was asked, for tests to look at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

from coterie.base.masking import redact
from coterie.llm.errors import NothingRecorded
from coterie.llm.messages import Chunk, CompletionRequest
from coterie.llm.tape import RecordedCall


class ReplayProvider:
    def __init__(
        self,
        name: str,
        entries: Iterable[RecordedCall] = (),
        *,
        default: Callable[[CompletionRequest], RecordedCall] | None = None,
        speed: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`pace` 1 keeps the recorded timing, 0 does not wait. `otherwise` answers what the tape does not hold."""
        self.name = name
        self.requests: list[CompletionRequest] = []
        self._entries = [entry for entry in entries if entry.provider in ("", name)]
        self._default = default
        self._speed = speed
        self._sleep = sleep

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        self.requests.append(request)
        entry = self._find(request)
        at = 0
        for due, chunk in entry.all_chunks():
            await self._wait(due - at)
            at = due
            yield chunk
        if entry.error is not None:
            await self._wait(entry.error.at_us - at)
            raise entry.error.to_error()
        if entry.stopped_us is not None:
            # The listener left at this moment when it was recorded; one who stays hears what a broken line sounds like.
            await self._wait(entry.stopped_us - at)

    async def close(self) -> None:
        """Nothing is open."""

    async def _wait(self, microseconds: int) -> None:
        if self._speed and microseconds > 0:
            await self._sleep(microseconds / 1_000_000 * self._speed)

    def _find(self, request: CompletionRequest) -> RecordedCall:
        asked = redact(request.model_dump_json())
        for place, entry in enumerate(self._entries):
            if _matches(entry, request, asked):
                return self._entries.pop(place)
        if self._default is not None:
            return self._default(request)
        last = request.prompt.messages[-1].text if request.prompt.messages else ""
        raise NothingRecorded(
            f'The recording of {self.name} holds no answer to this request ("{last[:60]}").',
            "Record it again, or add a line that answers it.",
        )


def _matches(entry: RecordedCall, request: CompletionRequest, asked: str) -> bool:
    if entry.request is not None:
        return entry.request.model_dump_json() == asked
    if entry.when is not None:
        return bool(request.prompt.messages) and entry.when in request.prompt.messages[-1].text
    return True
