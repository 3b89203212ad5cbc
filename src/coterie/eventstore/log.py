"""The port of the log: append, read, follow, and change which events count.

Durable before acknowledged: when `append` returns, the events are on the disk, the views have folded them and
the jobs they cause are queued. Any backend must pass the contract suite in tests/contracts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coterie.eventstore.events import AnyEvent, NewEvent
from coterie.eventstore.jobs import NewJob


@dataclass(frozen=True, slots=True)
class RewindImpact:
    """What a rewind would take back, and what it would bring back."""

    dropped: Sequence[AnyEvent]
    restored: Sequence[AnyEvent]


class Log(Protocol):
    async def append(
        self, new_events: Sequence[NewEvent], *, expect: Mapping[str, int] | None = None, jobs: Sequence[NewJob] = ()
    ) -> list[AnyEvent]:
        """Record all of the drafts, or none of them.

        `expect` names streams and the number of the last event the caller knows in each; `Conflict` if
        somebody was quicker. A draft whose key was recorded before makes the whole call a repetition: nothing
        is appended and the events of the first time are returned.
        """
        ...

    async def read(
        self,
        stream: str | None = None,
        *,
        after: int = 0,
        limit: int = 1_000,
        kinds: Collection[str] | None = None,
        newest_first: bool = False,
    ) -> list[AnyEvent]:
        """Events as they were recorded, counting or not. `after` is a seq with a stream, else an event id."""
        ...

    async def history(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        """The events that count in a stream, inherited ones included, oldest first.

        With a `limit`, the newest ones of that stretch.
        """
        ...

    def tail(self, after: int = 0) -> AsyncIterator[AnyEvent]:
        """Every event after an id, then each new one as it becomes durable."""
        ...

    async def head(self, stream: str) -> int:
        """The number of a stream's last event; 0 if it has none."""
        ...

    async def preview_rewind(self, stream: str, to: int) -> RewindImpact: ...

    async def rewind(self, stream: str, to: int, *, actor: str = "system") -> AnyEvent: ...

    async def redo(self, stream: str, *, actor: str = "system") -> AnyEvent:
        """Take the last rewind or reset back. `BadPoint` once something new has happened: fork instead."""
        ...

    async def supersede(
        self,
        stream: str,
        *,
        drop: Collection[int] = (),
        restore: Collection[int] = (),
        actor: str = "system",
    ) -> AnyEvent:
        """Of a stream's numbers, let some stop counting and others count again, in one step."""
        ...

    async def turn_seqs(self, stream: str, turn: str) -> list[int]:
        """The numbers, counting or not, of the events of one turn in a stream or what it inherits."""
        ...

    async def fork(self, stream: str, at: int, into: str, *, actor: str = "system") -> AnyEvent: ...

    async def reset(self, stream: str, *, actor: str = "system") -> AnyEvent: ...
