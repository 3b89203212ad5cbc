"""What a recording holds: one line of JSON per call, with the request, the chunks and when each came.

A hand-written script is the same file with less in it: `{"say": "Hello."}` answers whatever is asked,
`{"when": "your name", "say": "Mara."}` answers that, `{"error": {"kind": "RateLimited", "retry_after": 5}}` fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from coterie.base.errors import ConfigError
from coterie.llm import errors
from coterie.llm.messages import Chunk, CompletionRequest, Finished, TextDelta, Tokens

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
