"""The turns of rooms: the projection of every turn that counts, in order, and its queries."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    PictureDescribed,
    ReplyEdited,
    Segment,
    TurnDeleted,
    TurnHidden,
    UserTurn,
    UserTurnEdit,
)
from coterie.eventstore import AnyEvent, ChangedKeys, Event, Projection, Ranges, Rows, Store, on

State = Literal["open", "done", "truncated"]


@dataclass(frozen=True)
class TurnPicture:
    id: str
    description: str = ""
    """Empty until a model has described it."""


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
    follows: str | None = None
    """The reply before it, if several characters reply to one message."""
    hidden: bool = False
    """Whether it is left out of prompts and memories."""
    edited: bool = False
    """Whether a person changed its text after it was written."""
    retry_at: datetime | None = None
    """When the provider that refused the reply may be asked again, if it said so."""
    pictures: tuple[TurnPicture, ...] = ()

    @property
    def shown_at(self) -> datetime:
        return self.sent or self.at

    def heard_by(self, entity: str) -> bool:
        was_present = not self.present or entity in self.present
        return entity == self.speaker or (was_present and (not self.to or entity in self.to))


def turn_begun_by(event: AnyEvent) -> Turn | None:
    """The turn that an event begins, as the projection stores it; None for an event that begins no turn."""
    answers = follows = None
    match event.payload:
        case UserTurn() as payload:
            turn_id, speaker, text, segments = payload.turn, payload.author, payload.text, payload.segments
        case AssistantTurnStarted() as payload:
            turn_id, speaker, text, segments = payload.reply, payload.speaker, "", ()
            answers, follows = payload.answers, payload.follows
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
        follows=follows,
        pictures=tuple(map(TurnPicture, payload.pictures)) if isinstance(payload, UserTurn) else (),
    )


_TABLE = """(room TEXT, id TEXT, seq INTEGER NOT NULL, speaker TEXT NOT NULL, text TEXT NOT NULL,
            segments TEXT, state TEXT NOT NULL, why TEXT NOT NULL DEFAULT '', answers TEXT,
            model TEXT NOT NULL DEFAULT '', at INTEGER NOT NULL, recipients TEXT NOT NULL DEFAULT '[]',
            present TEXT NOT NULL DEFAULT '[]', sent INTEGER, status INTEGER, follows TEXT, retry_at INTEGER,
            hidden INTEGER NOT NULL DEFAULT 0, edited INTEGER NOT NULL DEFAULT 0, pictures TEXT NOT NULL DEFAULT '',
            PRIMARY KEY(room, id)) WITHOUT ROWID"""


class TurnsProjection(Projection):
    name = "turns"
    version = 5
    stream_column = "room"
    schema = f"""
        CREATE TABLE turn{_TABLE};
        CREATE TABLE deleted_turn{_TABLE};
        CREATE UNIQUE INDEX turn_order ON turn(room, seq);
        CREATE INDEX turn_changed ON turn(room) WHERE hidden OR edited;
        CREATE INDEX turn_open ON turn(state) WHERE state = 'open';
    """
    derived = search.SCHEMA

    @on(UserTurn)
    def user_turn(self, rows: Rows, event: Event[UserTurn]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO turn(room, id, seq, speaker, text, segments, state, at, recipients, present, sent,"
            " pictures) VALUES (?, ?, ?, ?, ?, ?, 'done', ?, ?, ?, ?, ?)",
            (
                event.stream,
                payload.turn,
                event.seq,
                payload.author,
                payload.text,
                _segments_column(payload.segments, payload.text),
                to_micros(event.ts),
                json.dumps(payload.to),
                json.dumps(payload.present),
                to_micros(payload.sent) if payload.sent is not None else None,
                _pictures_column([TurnPicture(picture) for picture in payload.pictures]),
            ),
        )

    @on(PictureDescribed)
    def picture_described(self, rows: Rows, event: Event[PictureDescribed]) -> None:
        payload = event.payload
        params = (event.stream, payload.message)
        for table in ("turn", "deleted_turn"):
            row = rows.one(f"SELECT pictures FROM {table} WHERE room = ? AND id = ?", params)  # noqa: S608
            if row is not None:
                pictures = [
                    TurnPicture(one.id, payload.description) if one.id == payload.picture else one
                    for one in _pictures(row[0])
                ]
                sql = f"UPDATE {table} SET pictures = ? WHERE room = ? AND id = ?"  # noqa: S608
                rows.run(sql, (_pictures_column(pictures), *params))

    @on(UserTurnEdit)
    def edited(self, rows: Rows, event: Event[UserTurnEdit]) -> None:
        payload = event.payload
        # The turn parser's own correction, and the wording that another alternative answers, are no edits of the text.
        rows.run(
            "UPDATE turn SET edited = edited OR (text <> ?1 AND ?5), text = ?1, segments = ?2"
            " WHERE room = ?3 AND id = ?4",
            (
                payload.text,
                _segments_column(payload.segments, payload.text),
                event.stream,
                payload.turn,
                event.turn == payload.turn,
            ),
        )

    @on(ReplyEdited)
    def reply_edited(self, rows: Rows, event: Event[ReplyEdited]) -> None:
        rows.run(
            "UPDATE turn SET text = ?, edited = 1 WHERE room = ? AND id = ?",
            (event.payload.text, event.stream, event.payload.reply),
        )

    @on(TurnHidden)
    def hidden(self, rows: Rows, event: Event[TurnHidden]) -> None:
        rows.run("UPDATE turn SET hidden = 1 WHERE room = ? AND id = ?", (event.stream, event.payload.turn))

    @on(TurnDeleted)
    def deleted(self, rows: Rows, event: Event[TurnDeleted]) -> None:
        params = (event.stream, event.payload.turn)
        rows.run("INSERT OR REPLACE INTO deleted_turn SELECT * FROM turn WHERE room = ? AND id = ?", params)
        rows.run("DELETE FROM turn WHERE room = ? AND id = ?", params)

    @on(AssistantTurnStarted)
    def started(self, rows: Rows, event: Event[AssistantTurnStarted]) -> None:
        payload = event.payload
        rows.run(
            "INSERT INTO turn(room, id, seq, speaker, text, state, answers, follows, at, recipients, present, sent)"
            " VALUES (?, ?, ?, ?, '', 'open', ?, ?, ?, ?, ?, ?)",
            (
                event.stream,
                payload.reply,
                event.seq,
                payload.speaker,
                payload.answers,
                payload.follows,
                to_micros(event.ts),
                json.dumps(payload.to),
                json.dumps(payload.present),
                to_micros(payload.sent) if payload.sent is not None else None,
            ),
        )

    @on(AssistantTurn)
    def ended(self, rows: Rows, event: Event[AssistantTurn]) -> None:
        payload = event.payload
        state = "truncated" if payload.truncated else "done"
        retry_at = None
        if payload.retry_after_s is not None:
            retry_at = to_micros(event.ts) + int(payload.retry_after_s * 1e6)
        changed = (payload.text, state, payload.why, payload.status, retry_at, payload.model)
        rows.run(
            "UPDATE turn SET text = ?, state = ?, why = ?, status = ?, retry_at = ?, model = ?"
            " WHERE room = ? AND id = ?",
            (*changed, event.stream, payload.reply),
        )

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        if changed is None:
            search.rebuild_index(rows)
        else:
            search.update_index(rows, changed)


_COLUMNS = (
    "id, room, seq, speaker, text, segments, state, why, answers, model, at, recipients, present, sent, status,"
    " follows, hidden, edited, retry_at, pictures"
)


class TurnQueries:
    """Reads the turns of rooms."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def turn(self, room: str, turn_id: str) -> Turn:
        rows = self._store.query(f"SELECT {_COLUMNS} FROM turn WHERE room = ? AND id = ?", (room, turn_id))  # noqa: S608
        if not rows:
            raise NoSuchTurn("This chat has no such turn.", "It may have been removed by a rewind: reload the chat.")
        return self._from_row(rows[0])

    def latest(self, room: str, limit: int, before: int | None = None) -> list[Turn]:
        """The newest turns, oldest first; only those before a seq if one is given."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE room = ?1 AND seq < coalesce(?2, 1 << 62)"  # noqa: S608
            " ORDER BY seq DESC LIMIT ?3",
            (room, before, limit),
        )
        return [self._from_row(row) for row in reversed(rows)]

    def last_with_text(self, room: str) -> Turn | None:
        """The last turn that is not empty: a reply that has just started still is."""
        return next((turn for turn in reversed(self.latest(room, 3)) if turn.text.strip()), None)

    def latest_reply(self, room: str) -> Turn | None:
        """The last turn of a character."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE room = ? AND segments IS NULL ORDER BY seq DESC LIMIT 1",  # noqa: S608
            (room,),
        )
        return self._from_row(rows[0]) if rows else None

    def count(self, room: str) -> int:
        return int(self._store.query("SELECT count(*) FROM turn WHERE room = ?", (room,))[0][0])

    def count_by(self, room: str, speaker: str) -> int:
        """The number of turns of one speaker."""
        return int(self._store.query("SELECT count(*) FROM turn WHERE room = ? AND speaker = ?", (room, speaker))[0][0])

    def open_replies(self, room: str | None = None) -> list[Turn]:
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE state = 'open' AND (?1 IS NULL OR room = ?1)",  # noqa: S608
            (room,),
        )
        return [self._from_row(row) for row in rows]

    def deleted(self, room: str, limit: int = 200) -> list[Turn]:
        """The turns that were deleted and can be restored, in order; the newest ones if there are more."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM deleted_turn WHERE room = ? ORDER BY seq DESC LIMIT ?",  # noqa: S608
            (room, limit),
        )
        return [_turn_from_row(row) for row in reversed(rows)]

    def changed(self, room: str) -> list[Turn]:
        """The turns whose text was edited, that are hidden, or that were deleted, in order."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE room = ?1 AND (hidden OR edited) UNION ALL"  # noqa: S608
            f" SELECT {_COLUMNS} FROM deleted_turn WHERE room = ?1 ORDER BY seq",
            (room,),
        )
        return [self._from_row(row) for row in rows]

    def between(self, room: str, first: int, last: int) -> list[Turn]:
        """The turns that start in a range of seqs, in order."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE room = ? AND seq BETWEEN ? AND ? ORDER BY seq",  # noqa: S608
            (room, first, last),
        )
        return [self._from_row(row) for row in rows]

    def replies_to(self, room: str, turn: str) -> list[Turn]:
        """The replies to a message, in order; several if more than one character replied."""
        rows = self._store.query(
            f"SELECT {_COLUMNS} FROM turn WHERE room = ?1 AND seq > coalesce((SELECT seq FROM turn WHERE room = ?1"  # noqa: S608
            " AND id = ?2), 0) AND answers = ?2 ORDER BY seq LIMIT 100",
            (room, turn),
        )
        return [self._from_row(row) for row in rows]

    def ids_after(self, room: str, seq: int) -> set[str]:
        """The turns that start after a seq, deleted ones included."""
        rows = self._store.query(
            "SELECT id FROM turn WHERE room = ?1 AND seq > ?2 UNION ALL"
            " SELECT id FROM deleted_turn WHERE room = ?1 AND seq > ?2",
            (room, seq),
        )
        return {turn for (turn,) in rows}

    def _from_row(self, row: tuple[Any, ...]) -> Turn:
        turn = _turn_from_row(row)
        return turn if turn.state != "open" else replace(turn, text=self._text_so_far(turn.room, turn.id))

    def _text_so_far(self, room: str, reply: str) -> str:
        """The text of an open reply. It is in the log only: stored with the turn, the undo journal would keep the text
        again after each piece.
        """
        reader = self._store.reader
        active = reader.active(room)
        seqs = Ranges((seq, seq) for seq in reader.turn_seqs(room, reply) if seq in active)
        events = reader.events_at(room, seqs)
        return "".join(event.payload.text for event in events if isinstance(event.payload, AssistantTokens))

    def next_seq(self, room: str, turn: Turn) -> int | None:
        """The seq of the turn after this one, deleted or not; None if it is the last."""
        seqs = [
            seq
            for table in ("turn", "deleted_turn")
            for (seq,) in self._store.query(
                f"SELECT min(seq) FROM {table} WHERE room = ? AND seq > ?",  # noqa: S608
                (room, turn.seq),
            )
            if seq is not None
        ]
        return min(seqs, default=None)


def _segments_column(segments: tuple[Segment, ...], text: str) -> str:
    """The segments as JSON; empty if the text is one line of dialogue, which most are."""
    if segments == (Segment(kind="dialogue", text=text),):
        return ""
    return json.dumps([segment.model_dump() for segment in segments], ensure_ascii=False)


def _pictures_column(pictures: Sequence[TurnPicture]) -> str:
    """As JSON; empty for the many turns without pictures."""
    return json.dumps([[one.id, one.description] for one in pictures], ensure_ascii=False) if pictures else ""


def _pictures(column: str) -> tuple[TurnPicture, ...]:
    return tuple(TurnPicture(*one) for one in json.loads(column)) if column else ()


_segments = TypeAdapter(tuple[Segment, ...])


@functools.lru_cache(maxsize=1_024)
def _parse_ids(column: str) -> tuple[str, ...]:
    """Cached: hundreds of turns in a row have the same few people."""
    return tuple(json.loads(column))


def _turn_from_row(row: tuple[Any, ...]) -> Turn:
    turn_id, room, seq, speaker, text, segments, state, why, answers, model, at, recipients, present, sent = row[:14]
    status, follows, hidden, edited, retry_at, pictures = row[14:]
    parts = _segments.validate_json(segments) if segments else ()
    if segments == "":
        parts = (Segment(kind="dialogue", text=text),)
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
        follows,
        bool(hidden),
        bool(edited),
        from_micros(retry_at) if retry_at is not None else None,
        _pictures(pictures),
    )
