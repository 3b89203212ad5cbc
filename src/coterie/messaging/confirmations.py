"""Questions that wait for a person's yes, no or number, in one room; they survive a restart. P8"""

from __future__ import annotations

import json
from dataclasses import dataclass

from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on
from coterie.messaging.inbox import room_stream
from coterie.messaging.protocol import RoomRef


class QuestionAsked(Payload, kind="question_asked"):
    """A question waits for a person's yes, no or number."""

    room: RoomRef
    """Where it was asked."""
    person: str
    """Whose answer counts, by id."""
    action: str
    """What a yes, or a choice, does."""
    choices: tuple[str, ...] = ()
    """To be chosen from by number; empty where it is yes or no."""


class QuestionSettled(Payload, kind="question_settled"):
    """A question was answered, or fell away."""

    room: RoomRef
    """Where it was asked."""
    person: str
    """Whose answer was waited for, by id."""


@dataclass(frozen=True)
class PendingQuestion:
    action: str
    choices: tuple[str, ...]


class ConfirmationsProjection(Projection):
    name = "questions"
    schema = """
        CREATE TABLE question(surface TEXT, room TEXT, person TEXT, action TEXT NOT NULL, choices TEXT NOT NULL,
            PRIMARY KEY(surface, room, person)) WITHOUT ROWID;
    """

    @on(QuestionAsked)
    def asked(self, rows: Rows, event: Event[QuestionAsked]) -> None:
        it = event.payload
        told = (it.room.surface, it.room.id, it.person, it.action, json.dumps(it.choices))
        rows.run("INSERT OR REPLACE INTO question VALUES (?, ?, ?, ?, ?)", told)

    @on(QuestionSettled)
    def settled(self, rows: Rows, event: Event[QuestionSettled]) -> None:
        it = event.payload
        told = (it.room.surface, it.room.id, it.person)
        rows.run("DELETE FROM question WHERE surface = ? AND room = ? AND person = ?", told)


class Confirmations:
    def __init__(self, store: Store) -> None:
        self._store = store

    def pending(self, room: RoomRef, person: str) -> PendingQuestion | None:
        rows = self._store.query(
            "SELECT action, choices FROM question WHERE surface = ? AND room = ? AND person = ?",
            (room.surface, room.id, person),
        )
        return PendingQuestion(rows[0][0], tuple(json.loads(rows[0][1]))) if rows else None

    async def ask(self, room: RoomRef, person: str, action: str, choices: tuple[str, ...] = ()) -> None:
        payload = QuestionAsked(room=room, person=person, action=action, choices=choices)
        await self._store.append([NewEvent(room_stream(room), payload, person)])

    async def close(self, room: RoomRef, person: str) -> None:
        await self._store.append([NewEvent(room_stream(room), QuestionSettled(room=room, person=person), person)])
