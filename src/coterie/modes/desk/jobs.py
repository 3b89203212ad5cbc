"""Jobs of the desk, and the outcome of a channel run that is stored with its job in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from coterie.base.clock import to_micros
from coterie.base.ids import new_id
from coterie.conversation import AssistantTurn, AssistantTurnStarted
from coterie.eventstore import JobResult, NewEvent, NewJob, Payload
from coterie.memory import MemoryType, NewMemory, RecalledMemory
from coterie.messaging import Attachment, RoomRef
from coterie.modes.desk.errors import BadSchedule
from coterie.modes.desk.events import (
    BranchStarted,
    DeskFilesSent,
    DeskReacted,
    DeskSkipped,
    ResultsInjected,
    ScheduleSet,
    ScheduleTime,
    WorkerStarted,
)
from coterie.modes.desk.queries import DeskChat, Process

BRANCH_JOB, WORKER_JOB, WAKE_JOB, MESSAGE_JOB = "desk_branch", "desk_worker", "desk_wake", "desk_message"
COMPACT_JOB, NOTIFY_JOB, SCHEDULE_JOB = "desk_compact", "desk_tell", "desk_schedule"
MESSAGE_PRIORITY, WAKE_PRIORITY, BRANCH_PRIORITY, WORKER_PRIORITY = 10, 5, 3, 0
DEBOUNCE_S = 0.5
WAKE_PREFIX = "wake:"
"""Prefix of the id of a channel run that no message caused."""


@dataclass
class ChannelOutcome:
    """Events and jobs of one run of an agent, collected and stored together when it ends.

    A crash before that repeats the run, and nothing of it happens twice.
    """

    chat: DeskChat
    answers: str
    """The turn that it answers, or an id that starts with `WAKE_PREFIX`."""
    replies: list[str] = field(default_factory=list)
    new_events: list[NewEvent] = field(default_factory=list)
    jobs: list[NewJob] = field(default_factory=list)
    skipped: bool = False
    withheld: bool = False
    """A reply was not sent because it contained a secret."""
    branches: int = 0
    files: list[Attachment] = field(default_factory=list)
    """Files that come with the reply."""
    deliver_to: RoomRef | None = None
    """The room that gets a reply that no message asked for; None: the rooms of the conversation."""
    private: bool = False
    """A private memory was recalled, so that memories made from this run are private, too."""

    @property
    def answered(self) -> bool:
        return bool(self.replies) or self.skipped

    def note_recalled(self, recalled: Sequence[RecalledMemory]) -> None:
        self.private = self.private or any(item.memory.private for item in recalled)

    def new_memory(self, text: str, kind: MemoryType) -> NewMemory:
        chat = self.chat
        return NewMemory(text, chat.character, chat.room, type=kind, sources=(self.answers,), private=self.private)

    def inject(self, results: Sequence[Process], text: str, *, woke: bool) -> None:
        ids = tuple(process.id for process in results)
        self.add_event(ResultsInjected(results=ids, text=text, woke=woke))

    def start_branch(self, thought: str, at: int, task_type: str = "") -> str:
        name = short_id("b")
        self.add_event(BranchStarted(branch=name, thought=thought, at=at, task_type=task_type))
        payload = {"room": self.chat.room, "branch": name}
        self.jobs.append(NewJob(BRANCH_JOB, f"{BRANCH_JOB}:{name}", payload, priority=BRANCH_PRIORITY))
        self.branches += 1
        return name

    def start_worker(self, task: str, interactive: bool, by: str = "", task_type: str = "") -> str:
        name = short_id("w")
        started = WorkerStarted(worker=name, task=task, interactive=interactive, by=by, task_type=task_type)
        self.add_event(started)
        self.jobs.append(worker_job(self.chat.room, name, 0))
        return name

    def skip(self, why: str) -> None:
        self.skipped = True
        self.add_event(DeskSkipped(answers=self.answers, why=why))

    def react(self, emoji: str) -> None:
        self.add_event(DeskReacted(turn=self.answers, emoji=emoji))

    def job_result(self, model: str = "", error: str = "") -> JobResult:
        """All events with the reply last, so that a reader of the reply finds the others."""
        new_events = list(self.new_events)
        if self.replies or self.files or error:
            reply = new_id()
            if self.files:
                sent = DeskFilesSent(reply=reply, files=tuple(self.files))
                new_events.append(NewEvent(self.chat.room, sent, self.chat.character, turn=reply))
            speaker = self.chat.character
            answers = None if self.answers.startswith(WAKE_PREFIX) else self.answers
            started = AssistantTurnStarted(reply=reply, speaker=speaker, answers=answers)
            ended = AssistantTurn(
                reply=reply, text="\n\n".join(self.replies), truncated=bool(error), why=error, model=model
            )
            new_events.append(NewEvent(self.chat.room, started, speaker, turn=reply))
            new_events.append(NewEvent(self.chat.room, ended, speaker, turn=reply))
            if answers is None:  # no surface is waiting for it
                payload: dict[str, object] = {"room": self.chat.room, "reply": reply}
                if self.deliver_to is not None:
                    payload["to"] = self.deliver_to.model_dump()
                notify = NewJob(NOTIFY_JOB, f"{NOTIFY_JOB}:{reply}", payload, priority=MESSAGE_PRIORITY)
                return JobResult(new_events, [*self.jobs, notify])
        return JobResult(new_events, self.jobs)

    def add_event(self, payload: Payload) -> None:
        self.new_events.append(NewEvent(self.chat.room, payload, self.chat.character))


def message_key(turn: str) -> str:
    """The key of the job that answers a message."""
    return f"{MESSAGE_JOB}:{turn}"


def worker_job(room: str, worker: str, key_suffix: object) -> NewJob:
    """The next turn of a worker; `key_suffix` makes the job's key unique."""
    key = f"{WORKER_JOB}:{room}:{worker}:{key_suffix}"
    return NewJob(WORKER_JOB, key, {"room": room, "worker": worker}, priority=WORKER_PRIORITY)


def wake_job(room: str, result: str, key_suffix: object) -> NewJob:
    """Run the channel after `DEBOUNCE_S`, in case more results arrive."""
    key = f"{WAKE_JOB}:{room}:{result}:{key_suffix}"
    return NewJob(WAKE_JOB, key, {"room": room}, delay_s=DEBOUNCE_S, priority=WAKE_PRIORITY)


def short_id(letter: str) -> str:
    """An id that is short enough for a model to copy; unique in its room."""
    return f"{letter}{new_id()[-8:].lower()}"


@dataclass(frozen=True)
class PlannedSchedule:
    schedule: str
    new_event: NewEvent
    job: NewJob


def plan_schedule(
    room: str,
    prompt: str,
    when: ScheduleTime,
    *,
    now: datetime,
    schedule: str = "",
    actor: str,
    to: RoomRef | None = None,
) -> PlannedSchedule:
    """The event and the first job of a schedule; an interval runs once it has passed."""
    when.check()
    due = when.due_after(now)
    if due is None:
        raise BadSchedule("That time has passed.", "Choose a time in the future.")
    name = schedule or short_id("s")
    new_event = NewEvent(room, ScheduleSet(schedule=name, prompt=prompt, when=when, next=due, to=to), actor)
    return PlannedSchedule(name, new_event, schedule_job(room, name, due, now))


def schedule_job(room: str, schedule: str, due: datetime, now: datetime) -> NewJob:
    delay_s = max((due - now) / timedelta(seconds=1), 0.0)
    payload = {"room": room, "schedule": schedule, "due": to_micros(due)}
    key = f"{SCHEDULE_JOB}:{room}:{schedule}:{to_micros(due)}"
    return NewJob(SCHEDULE_JOB, key, payload, delay_s=delay_s, priority=WORKER_PRIORITY)
