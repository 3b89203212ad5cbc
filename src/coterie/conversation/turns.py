"""The turns of rooms: the projection of every turn that counts, in order, and its queries."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import TypeAdapter

from coterie.base.clock import from_micros, to_micros
from coterie.conversation import search
from coterie.conversation.errors import NoSuchTurn
from coterie.conversation.events import (
    AssistantTokens,
    AssistantTurn,
    AssistantTurnStarted,
    Segment,
    UserTurn,
    UserTurnEdit,
)
from coterie.eventstore import AnyEvent, ChangedKeys, Event, Projection, Rows, Store, on

State = Literal["open", "done", "truncated"]


@dataclass(frozen=True)
class Turn:
    id: str
    room: str
    seq: int
    """Where it starts in the room's stream."""
    speaker: str
    """The id of a person or a character."""
    text: str
    segments: tuple[Segment, ...]
    """Empty for replies."""
    state: State
    why: str
    answers: str | None
    model: str
    at: datetime
    by_person: bool
    to: tuple[str, ...] = ()
    """The recipients of a whisper; empty means everybody present."""
    present: tuple[str, ...] = ()
    """Who was present; empty if it was not recorded."""
    sent: datetime | None = None
    """When an imported turn was originally sent."""
    status: int | None = None
    """The provider's HTTP status if it refused the reply."""

    @property
    def shown_at(self) -> datetime:
        return self.sent or self.at

    def heard_by(self, entity: str) -> bool:
        was_present = not self.present or entity in self.present
        return entity == self.speaker or (was_present and (not self.to or entity in self.to))


def turn_begun_by(event: AnyEvent) -> Turn | None:
    """The turn that an event begins, as the projection stores it; None for an event that begins no turn."""
    answers = None
    match event.payload:
        case UserTurn() as payload:
            turn_id, speaker, text, segments = payload.turn, payload.author, payload.text, payload.segments
        case AssistantTurnStarted() as payload:
            turn_id, speaker, text, segments, answers = payload.reply, payload.speaker, "", (), payload.answers
        case _:
            return None
    by_person = isinstance(payload, UserTurn)
    return Turn(
        id=turn_id,
        room=event.stream,
        seq=event.seq,
        speaker=speaker,
        text=text,
        segments=segments,
        state="done" if by_person else "open",
        why="",
        answers=answers,
        model="",
        at=event.ts,
        by_person=by_person,
        to=payload.to,
        present=payload.present,
        sent=payload.sent,
    )


class TurnsProjection(Projection):
    name = "turns"
    version = 2
    stream_column = "room"
    schema = """
        CREATE TABLE turn(room TEXT, id TEXT, seq INTEGER NOT NULL, speaker TEXT NOT NULL, text TEXT NOT NULL,
            segments TEXT, state TEXT NOT NULL, why TEXT NOT NULL DEFAULT '', answers TEXT,
            model TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL, recipients TEXT NOT NULL DEFAULT '[]',
            present TEXT NOT NULL DEFAULT '[]', sent INTEGER, status INTEGER,
            PRIMARY KEY(room, id)) WITHOUT ROWID;
        CREATE UNIQUE INDEX turn_order ON turn(room, seq);
        CREATE INDEX turn_open ON turn(state) WHERE state = 'open';
    """
    derived = search.SCHEMA

    @on(UserTurn)
    def user_turn(self, rows: Rows, event: Event[UserTurn]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO turn(room, id, seq, speaker, text, segments, state, at, recipients, present, sent)"
            " VALUES (?, ?, ?, ?, ?, ?, 'done', ?, ?, ?, ?)",
            (
                event.stream,
                payload.turn,
                event.seq,
                payload.author,
                payload.text,
                _to_json(payload.segments),
                to_micros(event.ts),
                json.dumps(payload.to),
                json.dumps(payload.present),
                to_micros(payload.sent) if payload.sent is not None else None,
            ),
        )

    @on(UserTurnEdit)
    def edited(self, rows: Rows, event: Event[UserTurnEdit]) -> None:
        payload = event.payload
        rows.run(
            "UPDATE turn SET text = ?, segments = ? WHERE room = ? AND id = ?",
            (payload.text, _to_json(payload.segments), event.stream, payload.turn),
        )

    @on(AssistantTurnStarted)
    def started(self, rows: Rows, event: Event[AssistantTurnStarted]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO turn(room, id, seq, speaker, text, state, answers, at, recipients, present, sent)"
            " VALUES (?, ?, ?, ?, '', 'open', ?, ?, ?, ?, ?)",
            (
                event.stream,
                payload.reply,
                event.seq,
                payload.speaker,
                payload.answers,
                to_micros(event.ts),
                json.dumps(payload.to),
                json.dumps(payload.present),
                to_micros(payload.sent) if payload.sent is not None else None,
            ),
        )

    @on(AssistantTokens)
    def tokens(self, rows: Rows, event: Event[AssistantTokens]) -> None:
        rows.run(
            "UPDATE turn SET text = text || ? WHERE room = ? AND id = ?",
            (event.payload.text, event.stream, event.payload.reply),
        )

    @on(AssistantTurn)
    def ended(self, rows: Rows, event: Event[AssistantTurn]) -> None:
        payload = event.payload
        state = "truncated" if payload.truncated else "done"
        rows.run(
            "UPDATE turn SET text = ?, state = ?, why = ?, status = ?, model = ? WHERE room = ? AND id = ?",
            (payload.text, state, payload.why, payload.status, payload.model, event.stream, payload.reply),
        )

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        if changed is None:
            search.rebuild_index(rows)
        else:
            search.update_index(rows, changed)


_COLUMNS = "id, room, seq, speaker, text, segments, state, why, answers, model, at, recipients, present, sent, status"


class TurnQueries:
    """Reads the turns of rooms."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def turn(self, room: str, turn_id: str) -> Turn:
        rows = self._store.query(f"SELECT {_COLUMNS} FROM turn WHERE room = ? AND id = ?", (room, turn_id))  # noqa: S608
        if not rows:
            raise NoSuchTurn("This chat has no such turn.", "It may have been taken back: reload the chat.")
        return _turn_from_row(rows[0])

    def latest(self, room: str, limit: int, before: int | None = None) -> list[Turn]:
        """The newest turns, oldest first; only those before a seq if one is given."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE room = ?1 AND seq < coalesce(?2, 1 << 62)"  # noqa: S608
            " ORDER BY seq DESC LIMIT ?3",
            (room, before, limit),
        )
        return [_turn_from_row(row) for row in reversed(rows)]

    def last_with_text(self, room: str) -> Turn | None:
        """The last turn that is not empty: a reply that has just started still is."""
        return next((turn for turn in reversed(self.latest(room, 3)) if turn.text.strip()), None)

    def latest_reply(self, room: str) -> Turn | None:
        """The last turn of a character."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE room = ? AND segments IS NULL ORDER BY seq DESC LIMIT 1",  # noqa: S608
            (room,),
        )
        return _turn_from_row(rows[0]) if rows else None

    def count(self, room: str) -> int:
        return int(self._store.query("SELECT count(*) FROM turn WHERE room = ?", (room,))[0][0])

    def open_replies(self, room: str | None = None) -> list[Turn]:
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE state = 'open' AND (?1 IS NULL OR room = ?1)",  # noqa: S608
            (room,),
        )
        return [_turn_from_row(row) for row in rows]

    def ids_after(self, room: str, seq: int) -> set[str]:
        """The turns that start after a seq."""
        return {turn for (turn,) in self._store.query("SELECT id FROM turn WHERE room = ? AND seq > ?", (room, seq))}

    def next_seq(self, room: str, turn: Turn) -> int | None:
        """The seq of the turn after this one; None if it is the last."""
        rows = self._store.query("SELECT min(seq) FROM turn WHERE room = ? AND seq > ?", (room, turn.seq))
        return rows[0][0] if rows else None


def _to_json(segments: tuple[Segment, ...]) -> str:
    return json.dumps([segment.model_dump() for segment in segments], ensure_ascii=False)


_segments = TypeAdapter(tuple[Segment, ...])


@functools.lru_cache(maxsize=1_024)
def _parse_ids(column: str) -> tuple[str, ...]:
    """Cached: hundreds of turns in a row have the same few people."""
    return tuple(json.loads(column))


def _turn_from_row(row: tuple[Any, ...]) -> Turn:
    turn_id, room, seq, speaker, text, segments, state, why, answers, model, at, recipients, present, sent, status = row
    parts = _segments.validate_json(segments) if segments else ()
    return Turn(
        turn_id,
        room,
        seq,
        speaker,
        text,
        parts,
        state,
        why,
        answers,
        model,
        from_micros(at),
        segments is not None,
        _parse_ids(recipients),
        _parse_ids(present),
        from_micros(sent) if sent is not None else None,
        status,
    )
