"""What a recording holds: one line of JSON per call, with the request, the chunks and when each came.

A hand-written script is the same file with less in it: `{"say": "Hello."}` answers whatever is asked,
`{"when": "your name", "say": "Mara."}` answers that, `{"error": {"kind": "RateLimited", "retry_after": 5}}` fails.
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
    kind: str
    what: str = "The script says that this call fails."
    fix: str = "Nothing is to be done: it is a script."
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
    provider: str = ""
    request: CompletionRequest | None = None
    """The exact request this answers; None answers any."""
    when: str | None = None
    """Answer only a prompt whose last message contains this."""
    say: str | None = None
    """A hand-written answer, given word by word."""
    chunks: tuple[tuple[int, Chunk], ...] = ()
    """Microseconds since the call began, and what came then."""
    error: RecordedError | None = None
    stopped_us: int | None = None
    """Set where the listener had heard enough."""

    def all_chunks(self) -> tuple[tuple[int, Chunk], ...]:
        if self.say is None:
            return self.chunks
        words = _WORDS.findall(self.say)
        end = Finished(reason="stop", tokens=Tokens(input=1, output=len(words), estimated=True), model="script")
        said = tuple((0, TextDelta(text=word)) for word in words)
        return said if self.error else (*said, (0, end))


def read_recording(path: Path) -> list[RecordedCall]:
    entries: list[RecordedCall] = []
    # Not splitlines(): JSON leaves the other line ends of Unicode as they are inside a text.
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


# Writes down everything that passes through a provider: requests, chunks, timings and failures, with secrets masked.
#
# Each call is one line, written when it ends, so a crash costs at most the calls that were under way.


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
