"""The port behind which every model stands: hosted, embedded, recorded or scripted.

One method that matters, `stream`: an async generator of chunks, the last of which is `Finished`. Closing the
generator (or cancelling the task that iterates it) must close the connection behind it at once; whatever goes wrong
is raised as a `ModelError` of the right kind. tests/contracts/provider_contract.py is the suite that every
implementation passes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from coterie.llm.messages import Chunk, CompletionRequest


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]: ...

    async def close(self) -> None:
        """Give back connections and processes. The provider may be used again: it starts anew."""
        ...
