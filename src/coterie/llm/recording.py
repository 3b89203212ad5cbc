"""Recording and replay of model calls. A recording has one line of JSON per call: request, chunks and their timing.

A script is a hand-written recording: `{"say": "Hello."}` answers any request, `{"when": "your name", "say": "Mara."}`
answers requests with that text, `{"error": {"kind": "RateLimited", "retry_after": 5}}` fails.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.base.clock import Clock
from coterie.base.errors import ConfigError
from coterie.base.redaction import redact
from coterie.llm import errors
from coterie.llm.errors import ModelError, NothingRecorded
from coterie.llm.messages import Chunk, CompletionRequest, Finished, Provider, TextDelta, ThinkingDelta, Tokens

_WORDS = re.compile(r"\S+\s*|\s+")


class _RecordingModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedError(_RecordingModel):
    """A recorded `ModelError`; `kind` is the name of its class."""

    kind: str
    what: str = "The script makes this call fail."
    fix: str = "Nothing to do: the failure is scripted."
    status: int | None = None
    retry_after: float | None = None
    at_us: int = 0

    @classmethod
    def from_error(cls, error: errors.ModelError, at_us: int = 0) -> RecordedError:
        return cls(
            kind=type(error).__name__,
            what=error.what,
            fix=error.fix,
            status=error.status,
            retry_after=error.retry_after,
            at_us=at_us,
        )

    def to_error(self) -> errors.ModelError:
        kind: Any = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, errors.ModelError)):
            raise ConfigError(f"A recording names the unknown error {self.kind!r}.", "Correct that line.")
        if issubclass(kind, errors.ChainFailed):
            return kind(self.what, self.fix, retry_after=self.retry_after)
        return kind(self.what, self.fix, status=self.status, retry_after=self.retry_after)


class RecordedCall(_RecordingModel):
    """One line of a recording."""

    provider: str = ""
    request: CompletionRequest | None = None
    """The exact request that this answers; None for any request."""
    when: str | None = None
    """Answers only prompts whose last message contains this text."""
    say: str | None = None
    """A hand-written answer, streamed word by word."""
    chunks: tuple[tuple[int, Chunk], ...] = ()
    """Microseconds since the start of the call, and the chunk."""
    error: RecordedError | None = None
    stopped_us: int | None = None
    """When the caller stopped reading, if it did."""

    def all_chunks(self) -> tuple[tuple[int, Chunk], ...]:
        if self.say is None:
            return self.chunks
        words = _WORDS.findall(self.say)
        end = Finished(reason="stop", tokens=Tokens(input=1, output=len(words), estimated=True), model="script")
        chunks = tuple((0, TextDelta(text=word)) for word in words)
        return chunks if self.error else (*chunks, (0, end))


def read_recording(path: Path) -> list[RecordedCall]:
    entries: list[RecordedCall] = []
    # Not splitlines(): JSON strings may contain Unicode's other line separators unescaped.
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entries.append(RecordedCall.model_validate_json(line))
        except ValidationError as error:
            raise ConfigError(
                f"Line {number} of the recording {path.name} cannot be read: {error.errors()[0]['msg']}.",
                "Correct that line, or record it again.",
            ) from None
    return entries


class ReplayProvider:
    """A provider that answers from a recording, or from hand-written answers in a test.

    A recorded answer is used for exactly the request it was recorded for, in recorded order; a scripted one for the
    next request that matches it. `requests` holds the requests so far, for tests.
    """

    def __init__(
        self,
        name: str,
        entries: Iterable[RecordedCall] = (),
        *,
        default: Callable[[CompletionRequest], RecordedCall] | None = None,
        speed: float = 0.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`speed` 1 keeps the recorded timing, 0 does not wait. `default` answers requests that have no entry."""
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
            # The recorded caller stopped here; for a caller that goes on reading, the answer ends without `Finished`.
            await self._wait(entry.stopped_us - at)

    async def close(self) -> None:
        """Nothing to release."""

    async def _wait(self, microseconds: int) -> None:
        if self._speed and microseconds > 0:
            await self._sleep(microseconds / 1_000_000 * self._speed)

    def _find(self, request: CompletionRequest) -> RecordedCall:
        request_json = redact.value(request).model_dump_json()
        for position, entry in enumerate(self._entries):
            if _matches(entry, request, request_json):
                return self._entries.pop(position)
        if self._default is not None:
            return self._default(request)
        last = request.prompt.messages[-1].text if request.prompt.messages else ""
        raise NothingRecorded(
            f'The recording of {self.name} has no answer to this request ("{last[:60]}").',
            "Record it again, or add a line that answers it.",
        )


def _matches(entry: RecordedCall, request: CompletionRequest, request_json: str) -> bool:
    if entry.request is not None:
        return entry.request.model_dump_json() == request_json
    if entry.when is not None:
        return bool(request.prompt.messages) and entry.when in request.prompt.messages[-1].text
    return True


class RecordingProvider:
    """Wraps a provider and appends each call to a recording when it ends, with secrets masked."""

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
        line = redact.value(entry).model_dump_json(exclude_defaults=True)
        with self._write_lock, self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _join_split_secrets(chunks: list[tuple[int, Chunk]]) -> tuple[tuple[int, Chunk], ...]:
    """If the joined text contains a secret, mask it and store the text as one chunk, as its parts cannot be masked."""
    for kind in (TextDelta, ThinkingDelta):
        field = "text" if kind is TextDelta else "thinking"
        joined = "".join(getattr(chunk, field) for _, chunk in chunks if isinstance(chunk, kind))
        if redact.contains_secret(joined):
            first = next(position for position, (_, chunk) in enumerate(chunks) if isinstance(chunk, kind))
            at = chunks[first][0]
            rest = [pair for pair in chunks[first + 1 :] if not isinstance(pair[1], kind)]
            chunks = [*chunks[:first], (at, kind(**{field: redact(joined)})), *rest]
    return tuple(chunks)
