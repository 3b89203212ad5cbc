"""The protocol of the event log: append, read, follow, and change which events are active.

When `append` returns, the events are on the disk, the projections include them and the jobs they cause are queued.
Every backend must pass the contract suite in tests/contracts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coterie.eventstore.events import AnyEvent, NewEvent
from coterie.eventstore.jobs import NewJob


@dataclass(frozen=True, slots=True)
class RewindImpact:
    """The events that a rewind would deactivate, and those that it would reactivate."""

    dropped: Sequence[AnyEvent]
    restored: Sequence[AnyEvent]


class Log(Protocol):
    async def append(
        self, new_events: Sequence[NewEvent], *, expect: Mapping[str, int] | None = None, jobs: Sequence[NewJob] = ()
    ) -> list[AnyEvent]:
        """Append all of the events, or none of them.

        `expect` maps streams to the sequence number of the last event the caller knows; `Conflict` if there are
        newer ones. If a key was used before, the call is a repetition: nothing is appended, and the events of the
        first call are returned.
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
        """Events as they were appended, active or not. `after` is a sequence number with a stream, else an event id."""
        ...

    async def history(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[AnyEvent]:
        """The active events of a stream, including inherited ones, oldest first. With a `limit`, the newest of them."""
        ...

    def tail(self, after: int = 0) -> AsyncIterator[AnyEvent]:
        """Every event after an id, then each new one when it is durable."""
        ...

    async def head(self, stream: str) -> int:
        """The sequence number of a stream's last event; 0 if it has none."""
        ...

    async def preview_rewind(self, stream: str, to: int) -> RewindImpact: ...

    async def rewind(self, stream: str, to: int, *, actor: str = "system") -> AnyEvent: ...

    async def redo(self, stream: str, *, actor: str = "system") -> AnyEvent:
        """Undo the last rewind or reset. `BadPoint` if there are events after it: fork instead."""
        ...

    async def supersede(
        self,
        stream: str,
        *,
        drop: Collection[int] = (),
        restore: Collection[int] = (),
        actor: str = "system",
    ) -> AnyEvent:
        """Deactivate some events of a stream and reactivate others, by sequence number, in one step."""
        ...

    async def turn_seqs(self, stream: str, turn: str) -> list[int]:
        """The sequence numbers of the events of a turn in a stream and what it inherits, active or not."""
        ...

    async def fork(self, stream: str, at: int, into: str, *, actor: str = "system") -> AnyEvent: ...

    async def reset(self, stream: str, *, actor: str = "system") -> AnyEvent: ...
