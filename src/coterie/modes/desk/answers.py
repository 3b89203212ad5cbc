"""Waiting for what comes of a message: the reply, or the certainty that there is none."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from coterie.engine.events import AssistantTurn
from coterie.engine.turns import Turn, TurnQueries
from coterie.kernel import Store, WhenSlow
from coterie.kernel.bus import subject_token
from coterie.modes.desk.errand import MESSAGE_JOB

_LOOK_EVERY_S = 0.5
"""For a message that nothing is said about: it was skipped, or answered with another."""


class ReplyWaiter:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._timeline = TurnQueries(store)

    async def wait(self, room: str, turn: str) -> Turn | None:
        """Until the message was looked at; None where it was skipped, answered with others, or given up."""
        # Only replies: a busy desk records fifty other things a second, and none of them is worth looking up for.
        subject = f"event.{subject_token(room)}.{AssistantTurn.kind}"
        async with self._store.bus.subscribe(subject, limit=1, when_slow=WhenSlow.DROP_OLDEST) as said:
            while not self.handled(turn):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        await anext(said)
        return self.find(room, turn)

    def find(self, room: str, turn: str) -> Turn | None:
        return next((one for one in reversed(self._timeline.latest(room, 50)) if one.answers == turn), None)

    def handled(self, turn: str) -> bool:
        return self._state(turn) not in ("ready", "leased")

    def given_up(self, turn: str) -> bool:
        return self._state(turn) == "dead"

    def _state(self, turn: str) -> str:
        return self._store.reader.jobs.state_of(f"{MESSAGE_JOB}:{turn}") or ""
