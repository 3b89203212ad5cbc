"""Writes down everything that passes through a provider: requests, chunks, timings and failures, with secrets masked.

Each call is one line, written when it ends, so a crash costs at most the calls that were under way.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from coterie.base.clock import Clock
from coterie.base.masking import redact
from coterie.llm.errors import ModelError
from coterie.llm.messages import Chunk, CompletionRequest, TextDelta, ThinkingDelta
from coterie.llm.provider import Provider
from coterie.llm.tape import RecordedCall, RecordedError


class RecordingProvider:
    def __init__(self, provider: Provider, path: Path, clock: Clock) -> None:
        self.name = provider.name
        self._provider = provider
        self._path = path
        self._clock = clock
        self._write_lock = threading.Lock()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        began = self._clock.monotonic()
        chunks: list[tuple[int, Chunk]] = []
        error: RecordedError | None = None
        stopped: int | None = None
        try:
            async with aclosing(self._provider.stream(request)) as stream:
                async for chunk in stream:
                    chunks.append((self._elapsed_us(began), chunk))
                    yield chunk
        except ModelError as failure:
            error = RecordedError.from_error(failure, self._elapsed_us(began))
            raise
        except BaseException:
            stopped = self._elapsed_us(began)
            raise
        finally:
            self._write(
                RecordedCall(
                    provider=self.name,
                    request=request,
                    chunks=_join_split_secrets(chunks),
                    error=error,
                    stopped_us=stopped,
                )
            )

    async def close(self) -> None:
        await self._provider.close()

    def _elapsed_us(self, began: float) -> int:
        return round((self._clock.monotonic() - began) * 1_000_000)

    def _write(self, entry: RecordedCall) -> None:
        line = redact(entry.model_dump_json(exclude_defaults=True))
        with self._write_lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _join_split_secrets(chunks: list[tuple[int, Chunk]]) -> tuple[tuple[int, Chunk], ...]:
    """A secret that was streamed in two halves is in neither chunk: where the whole shows one, it is kept whole."""
    for kind in (TextDelta, ThinkingDelta):
        field = "text" if kind is TextDelta else "thinking"
        whole = "".join(getattr(chunk, field) for _, chunk in chunks if isinstance(chunk, kind))
        if redact.contains_secret(whole):
            first = next(place for place, (_, chunk) in enumerate(chunks) if isinstance(chunk, kind))
            at = chunks[first][0]
            rest = [pair for pair in chunks[first + 1 :] if not isinstance(pair[1], kind)]
            chunks = [*chunks[:first], (at, kind(**{field: redact(whole)})), *rest]
    return tuple(chunks)
