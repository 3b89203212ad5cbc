"""Queries of the desk: conversations, processes, schedules, bulletins and what an audience may hear."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter

from coterie.base.clock import from_micros
from coterie.characters import PeopleQueries
from coterie.eventstore import Store
from coterie.llm import PromptMessage
from coterie.memory import Memory, RecalledMemory, Viewpoint
from coterie.messaging import Attachment, RoomRef
from coterie.modes.desk.errors import BadSchedule, NoSuchProcess
from coterie.modes.desk.events import ScheduleTime

COMPLETIONS = 5
"""Ended processes that the status block lists."""

_messages = TypeAdapter(tuple[PromptMessage, ...])
_files = TypeAdapter(tuple[Attachment, ...])


@dataclass(frozen=True)
class DeliveryRoom:
    """A room on a surface."""

    room: RoomRef
    title: str

    @property
    def label(self) -> str:
        return f"{self.room.surface}: {self.title}"


@dataclass(frozen=True)
class DeskChat:
    room: str
    character: str
    person: str
    title: str
    wakes: int
    """Wake-ups by results since the last message of a person."""


@dataclass(frozen=True)
class HistoryEntry:
    seq: int
    role: str
    """`user`, `assistant`, or `result`."""
    speaker: str
    text: str


@dataclass(frozen=True)
class Process:
    room: str
    id: str
    kind: str
    """`branch` or `worker`."""
    task: str
    state: str
    status: str
    interactive: bool
    at_seq: int | None
    started: datetime
    last_activity: datetime
    ended: datetime | None
    steps: int
    calls: int
    result: str
    unread: bool
    """Its result is not part of the conversation yet."""
    pending_message: PromptMessage | None
    allowed: bool | None
    task_type: str = ""
    """The type of its task, which may have a model of its own."""

    @property
    def active(self) -> bool:
        return self.state in ("running", "waiting")

    @property
    def needs_confirmation(self) -> bool:
        """It waits for a person's yes or no; a follow-up is not enough."""
        return self.state == "waiting" and self.pending_message is not None and bool(self.pending_message.calls)


@dataclass(frozen=True)
class WorkerStep:
    """One message or tool call of a worker, for people to read."""

    role: str
    """`message`, `follow_up` or `tool`."""
    text: str
    tool: str = ""
    arguments: str = ""


_PROCESS = (
    "room, id, kind, task, state, status, interactive, at_seq, started, last_activity, ended, steps, calls, result,"
    " unread, pending_message, allowed, task_type"
)
_SELECT_SCHEDULE = (
    'SELECT room, id, prompt, timing, "on", next, failures, why, last, last_end, last_output, target FROM desk_schedule'
)


class DeskQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def chat(self, room: str) -> DeskChat:
        rows = self._store.query("SELECT room, character, person, title, wakes FROM desk_chat WHERE room = ?", (room,))
        if not rows:
            raise NoSuchProcess("There is no such desk conversation.", "List them, and choose one.")
        return DeskChat(*rows[0])

    def files_of(self, room: str, reply: str) -> tuple[Attachment, ...]:
        """The files that came with a reply."""
        rows = self._store.query("SELECT files FROM desk_sent_files WHERE room = ? AND reply = ?", (room, reply))
        return _files.validate_json(rows[0][0]) if rows else ()

    def reaction_to(self, room: str, turn: str) -> str:
        """The emoji with which the character reacted to a message; empty if it did not."""
        rows = self._store.query("SELECT emoji FROM desk_reaction WHERE room = ? AND turn = ?", (room, turn))
        return str(rows[0][0]) if rows else ""

    def delivery_rooms(self, person: str) -> list[DeliveryRoom]:
        """The rooms of a person on all surfaces, to which a schedule can deliver."""
        rows = self._store.query(
            "SELECT surface, room, title FROM surface_room WHERE person = ? AND NOT archived ORDER BY surface, number",
            (person,),
        )
        return [DeliveryRoom(RoomRef(surface=surface, id=room), title) for surface, room, title in rows]

    def find_delivery_room(self, person: str, name: str) -> RoomRef:
        """By its label (`telegram: Kitchen`), or by its title if only one room has it."""
        rooms = self.delivery_rooms(person)
        wanted = name.strip().lower()
        found = [one for one in rooms if one.label.lower() == wanted] or [
            one for one in rooms if one.title.lower() == wanted
        ]
        if len(found) != 1:
            labels = ", ".join(one.label for one in rooms) or "none"
            raise BadSchedule(f"There is no single room called {name[:60]!r}.", f"There are: {labels}.")
        return found[0].room

    def is_desk(self, room: str) -> bool:
        return bool(self._store.query("SELECT 1 FROM desk_chat WHERE room = ?", (room,)))

    def chats(self) -> list[DeskChat]:
        rows = self._store.query("SELECT room, character, person, title, wakes FROM desk_chat ORDER BY at DESC")
        return [DeskChat(*row) for row in rows]

    def history(self, room: str, upto: int | None = None) -> list[HistoryEntry]:
        """Lines that no summary replaces, oldest first."""
        rows = self._store.query(
            "SELECT seq, role, speaker, text FROM desk_history"
            " WHERE room = ?1 AND summarized_by IS NULL AND seq <= coalesce(?2, 1 << 62) ORDER BY seq",
            (room, upto),
        )
        return [HistoryEntry(*row) for row in rows]

    def newest_message(self, room: str) -> str | None:
        """The turn of the latest message of a person."""
        rows = self._store.query(
            "SELECT turn FROM desk_history WHERE room = ? AND role = 'user' ORDER BY seq DESC LIMIT 1", (room,)
        )
        return rows[0][0] if rows else None

    def is_open(self, job_key: str) -> bool:
        """Whether a job waits for its run, or runs."""
        return self._store.reader.jobs.state_of(job_key) in ("ready", "leased")

    def archive(self, room: str) -> list[HistoryEntry]:
        """All lines, summarised or not."""
        rows = self._store.query(
            "SELECT seq, role, speaker, text FROM desk_history WHERE room = ? ORDER BY seq", (room,)
        )
        return [HistoryEntry(*row) for row in rows]

    def summaries(self, room: str) -> list[str]:
        return [t for (t,) in self._store.query("SELECT text FROM desk_summary WHERE room = ? ORDER BY seq", (room,))]

    def process(self, room: str, name: str) -> Process:
        rows = self._store.query(f"SELECT {_PROCESS} FROM desk_process WHERE room = ? AND id = ?", (room, name))  # noqa: S608
        if not rows:
            raise NoSuchProcess(f"There is no branch or worker {name!r} here.", "Look at the status block for ids.")
        return _process(rows[0])

    def processes(self, room: str) -> list[Process]:
        rows = self._store.query(f"SELECT {_PROCESS} FROM desk_process WHERE room = ? ORDER BY started, id", (room,))  # noqa: S608
        return [_process(row) for row in rows]

    def status_processes(self, room: str) -> list[Process]:
        """Active processes and the latest `COMPLETIONS` that ended."""
        rows = self._store.query(
            f"SELECT {_PROCESS} FROM desk_process WHERE room = ?1 AND state IN ('running', 'waiting')"  # noqa: S608
            f" UNION ALL SELECT * FROM (SELECT {_PROCESS} FROM desk_process WHERE room = ?1 AND ended IS NOT NULL"
            " ORDER BY ended DESC, id DESC LIMIT ?2)",
            (room, COMPLETIONS),
        )
        return sorted((_process(row) for row in rows), key=lambda each: (each.started, each.id))

    def active_processes(self) -> list[Process]:
        """In every room."""
        rows = self._store.query(f"SELECT {_PROCESS} FROM desk_process WHERE state IN ('running', 'waiting')")  # noqa: S608
        return [_process(row) for row in rows]

    def running_branches(self, room: str) -> int:
        sql = "SELECT count(*) FROM desk_process WHERE room = ? AND kind = 'branch' AND state = 'running'"
        return int(self._store.query(sql, (room,))[0][0])

    def last_history_seq(self, room: str) -> int:
        """The sequence number of the last line that no summary replaces."""
        sql = "SELECT coalesce(max(seq), 0) FROM desk_history WHERE room = ? AND summarized_by IS NULL"
        return int(self._store.query(sql, (room,))[0][0])

    def active_count(self, room: str) -> int:
        sql = "SELECT count(*) FROM desk_process WHERE room = ? AND state IN ('running', 'waiting')"
        return int(self._store.query(sql, (room,))[0][0])

    def unread_results(self, room: str) -> list[Process]:
        """Processes with a result or question that is not part of the conversation yet."""
        sql = f"SELECT {_PROCESS} FROM desk_process WHERE room = ? AND unread ORDER BY started, id"  # noqa: S608
        rows = self._store.query(sql, (room,))
        return [_process(row) for row in rows]

    def worker_messages(self, room: str, worker: str) -> list[PromptMessage]:
        rows = self._store.query(
            "SELECT messages FROM desk_step WHERE room = ? AND worker = ? ORDER BY seq", (room, worker)
        )
        return [message for (stored,) in rows for message in _parse_messages(stored)]

    def worker_steps(self, process: Process) -> list[WorkerStep]:
        """What a worker did so far, each tool call with its result."""
        messages = [
            *self.worker_messages(process.room, process.id),
            *([process.pending_message] if process.pending_message else []),
        ]
        steps = []
        for message in messages:
            if message.role == "tool":
                call = message.answers
                steps.append(
                    WorkerStep("tool", message.text, call.name if call else "", call.arguments if call else "")
                )
            elif message.text:
                steps.append(WorkerStep("follow_up" if message.role == "user" else "message", message.text))
        return steps


@lru_cache(maxsize=1_024)
def _parse_messages(stored: str) -> tuple[PromptMessage, ...]:
    # Cached because every turn of a worker reads all of its earlier messages.
    return _messages.validate_json(stored)


def _process(row: tuple[Any, ...]) -> Process:
    room, name, kind, task, state, status, interactive, at_seq, started, last_activity, ended, steps, calls = row[:13]
    result, unread, pending, allowed, task_type = row[13:]
    return Process(
        room=room,
        id=name,
        kind=kind,
        task=task,
        state=state,
        status=status,
        interactive=bool(interactive),
        at_seq=at_seq,
        started=from_micros(started),
        last_activity=from_micros(last_activity),
        ended=from_micros(ended) if ended is not None else None,
        steps=steps,
        calls=calls,
        result=result,
        unread=bool(unread),
        pending_message=PromptMessage.model_validate(json.loads(pending)) if pending else None,
        allowed=None if allowed is None else bool(allowed),
        task_type=task_type,
    )


@dataclass(frozen=True)
class DeskSchedule:
    room: str
    id: str
    prompt: str
    when: ScheduleTime
    on: bool
    next: datetime | None
    failures: int
    """Consecutive failures."""
    why: str
    """Why it is off."""
    last: datetime | None
    last_end: str
    last_output: str
    to: RoomRef | None
    """The room on a surface that gets what its runs say; None: the rooms of the conversation."""


class ScheduleQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def all(self, room: str | None = None) -> list[DeskSchedule]:
        rows = self._store.query(f"{_SELECT_SCHEDULE} WHERE ?1 IS NULL OR room = ?1 ORDER BY room, id", (room,))
        return [_schedule(row) for row in rows]

    def find(self, room: str, schedule: str) -> DeskSchedule | None:
        rows = self._store.query(f"{_SELECT_SCHEDULE} WHERE room = ? AND id = ?", (room, schedule))
        return _schedule(rows[0]) if rows else None

    def get(self, room: str, schedule: str) -> DeskSchedule:
        current = self.find(room, schedule)
        if current is None:
            raise NoSuchProcess(f"There is no schedule {schedule!r} here.", "List them, and choose one.")
        return current


def _schedule(row: tuple[Any, ...]) -> DeskSchedule:
    room, name, prompt, timing, on_, due, failures, why, last, last_end, last_output, target = row
    return DeskSchedule(
        room=room,
        id=name,
        prompt=prompt,
        when=ScheduleTime.model_validate_json(timing),
        on=bool(on_),
        next=from_micros(due) if due is not None else None,
        failures=failures,
        why=why,
        last=from_micros(last) if last is not None else None,
        last_end=last_end,
        last_output=last_output,
        to=RoomRef.model_validate_json(target) if target else None,
    )


_PEOPLE_PRESENT = """
    SELECT speaker FROM desk_history WHERE room = ?1 AND role = 'user' AND speaker != ''
    UNION SELECT guest.person FROM surface_room held JOIN room_guest guest USING (surface, room) WHERE held.context = ?1
"""


class Audience:
    """Who hears what a character says in a conversation, and what it may therefore recall.

    The audience is the person of the conversation, everyone admitted to a room where it is held, and everyone who
    has written in it. All recall of the desk goes through this class, so that the same access rules apply.
    """

    def __init__(self, store: Store, memory: Memory) -> None:
        self._store = store
        self._memory = memory
        self._people = PeopleQueries(store)

    def present(self, chat: DeskChat) -> frozenset[str]:
        return frozenset([chat.person, *(person for (person,) in self._store.query(_PEOPLE_PRESENT, (chat.room,)))])

    def witnesses(self, chat: DeskChat) -> tuple[str, ...]:
        """The character and its audience, as witnesses of new memories."""
        return tuple(sorted({chat.character, *self.present(chat)}))

    def viewpoint(self, chat: DeskChat) -> Viewpoint:
        return self._viewpoint(chat, self.present(chat), chat.room)

    def viewpoint_of_person(self, chat: DeskChat) -> Viewpoint:
        """With the person alone in any room: memories bound to a room are left out."""
        return self._viewpoint(chat, frozenset([chat.person]), None)

    def recall(self, chat: DeskChat, question: str, k: int) -> list[RecalledMemory]:
        return self._memory.recall_as(self.viewpoint(chat), question, k=k)

    def recall_for_other(self, other: str, chat: DeskChat, question: str, k: int) -> list[RecalledMemory]:
        """What another character recalls for a question from here; the asking character hears it, too."""
        own = self.viewpoint(chat)
        viewpoint = Viewpoint.of(other, chat.room, [*own.present, chat.character], own.people)
        return self._memory.recall_as(viewpoint, question, k=k)

    def _viewpoint(self, chat: DeskChat, present: frozenset[str], room: str | None) -> Viewpoint:
        desk_people = self._store.query("SELECT DISTINCT person FROM desk_chat")
        people = [*self._people.ids(), *present, *(person for (person,) in desk_people)]
        return Viewpoint.of(chat.character, room, present, people)


class BulletinQueries:
    """The latest bulletin of a character for a person: what it should know when they talk.

    A bulletin is shown only while every memory it was made from exists and may be disclosed to the audience, so that it
    never reveals what was rewound, forgotten or made private since.
    """

    def __init__(self, store: Store, memory: Memory, audience: Audience) -> None:
        self._store = store
        self._memory = memory
        self._audience = audience

    def text(self, chat: DeskChat) -> str:
        """The whole bulletin if this conversation may show it, else nothing."""
        text, memories = self._latest(chat)
        return text if text and self._disclosable(self._audience.viewpoint(chat), memories) else ""

    def stale(self, chat: DeskChat) -> bool:
        """Whether it contains what its person may no longer be shown."""
        text, memories = self._latest(chat)
        return bool(text) and not self._disclosable(self._audience.viewpoint_of_person(chat), memories)

    def upto(self, character: str, person: str) -> int:
        """The event id of the last memory change that the bulletin includes."""
        sql = "SELECT upto FROM desk_bulletin WHERE character = ? AND person = ?"
        rows = self._store.query(sql, (character, person))
        return int(rows[0][0]) if rows else 0

    def _latest(self, chat: DeskChat) -> tuple[str, list[str]]:
        sql = "SELECT text, memories FROM desk_bulletin WHERE character = ? AND person = ?"
        rows = self._store.query(sql, (chat.character, chat.person))
        return (str(rows[0][0]), json.loads(rows[0][1])) if rows else ("", [])

    def _disclosable(self, viewpoint: Viewpoint, memories: list[str]) -> bool:
        # A bulletin without its sources cannot be checked and counts as stale.
        return bool(memories) and len(self._memory.disclosable(viewpoint, memories)) == len(set(memories))
