"""Events of the desk, in the stream of the conversation's room, and the time of a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coterie.base.errors import JobError
from coterie.base.values import LATEST, MAX_DURATION_S, clamp_time, parse_time
from coterie.eventstore import Payload, Schedule, upcaster
from coterie.llm import PromptMessage
from coterie.messaging import Attachment, RoomRef
from coterie.modes.desk.errors import BadSchedule

_MIN_INTERVAL_S = 60.0
_MAX_TRIES = 3_000
"""Candidate times checked against the active hours: two days of minutes, eight years of days."""


class ScheduleTime(BaseModel):
    """When a schedule is due: by cron expression, by interval or once, optionally within certain hours.

    Days and hours are those of its time zone and follow its daylight saving time; an interval is elapsed time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    cron: str = Field(default="", max_length=100)
    """Five fields, such as `0 8 * * 1-5`."""
    every_s: float | None = None
    """Seconds between two runs, from 60 up to ten years."""
    at: datetime | None = None
    """One run at this time; without an offset it is in `zone`."""
    zone: str = Field(default="UTC", max_length=100)
    """A name such as `Europe/Berlin`."""
    hours: str = Field(default="", pattern=r"^$|^\d\d:\d\d-\d\d:\d\d$")
    """When it may run, such as `08:00-22:00`, also over midnight; empty: always."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum((bool(self.cron), self.every_s is not None, self.at is not None)) != 1:
            raise ValueError("it needs exactly one of a cron expression, an interval and a time")
        return self

    @property
    def once(self) -> bool:
        return self.at is not None

    def check(self) -> None:
        """Raise `BadSchedule` if it is invalid."""
        if self.every_s is not None and not _MIN_INTERVAL_S <= self.every_s <= MAX_DURATION_S:
            raise BadSchedule(
                f"It would run every {self.every_s:g} s.", f"Give it from {_MIN_INTERVAL_S:.0f} s up to ten years."
            )
        if self.at is not None and parse_time(self.at.isoformat()) is None:
            raise BadSchedule(f"The year {self.at.year} is not supported.", f"Choose one before {LATEST.year}.")
        try:
            (self._timer() if self.at is None else Schedule("once", "", every_s=1.0, zone=self.zone)).validate()
        except JobError as error:
            raise BadSchedule(error.what, error.fix) from None
        if self.hours:
            self._active_hours()

    def due_after(self, moment: datetime) -> datetime | None:
        """The first due time after `moment`; None if there is none left."""
        if self.at is not None:
            at = clamp_time(self.at if self.at.tzinfo is not None else self.at.replace(tzinfo=ZoneInfo(self.zone)))
            return at if at > moment else None
        due = moment
        for _ in range(_MAX_TRIES):
            try:
                due = self._timer().next_after(due).astimezone(UTC)
            except StopIteration:
                break
            if self._is_active_at(due):
                return due
        raise BadSchedule("This schedule is never due.", "Check its days and its hours.")

    def describe(self) -> str:
        """A short text for people and models."""
        if self.at is not None:
            text = f"once, at {self.at:%Y-%m-%d %H:%M}"
        elif self.cron:
            text = f"cron {self.cron}"
        else:
            text = f"every {(self.every_s or 0) / 60:g} min"
        return f"{text} ({self.zone}{f', {self.hours}' if self.hours else ''})"

    def _timer(self) -> Schedule:
        return Schedule("desk", "", self.cron or None, self.every_s, self.zone)

    def _is_active_at(self, moment: datetime) -> bool:
        if not self.hours:
            return True
        first, last = self._active_hours()
        now = moment.astimezone(ZoneInfo(self.zone)).time()
        return first <= now < last if first <= last else now >= first or now < last

    def _active_hours(self) -> tuple[time, time]:
        try:
            first, last = (time.fromisoformat(part) for part in self.hours.split("-"))
        except ValueError:
            raise BadSchedule(f"{self.hours} are not valid hours.", "Write them as 08:00-22:00.") from None
        return first, last


BranchEnd = Literal["done", "failed", "stale", "cancelled"]
WorkerEnd = Literal["done", "failed", "cancelled"]
RunEnd = Literal["replied", "nothing", "failed"]


class DeskOpened(Payload, kind="desk_opened"):
    """A desk conversation was opened."""

    character: str
    """The character's id."""
    person: str
    """The person of the conversation; `you` is the owner."""
    title: str = ""
    """Its title; empty: the name of the character."""


class DeskRenamed(Payload, kind="desk_renamed"):
    """A desk conversation was renamed."""

    title: str
    """The new title."""


class DeskSkipped(Payload, kind="desk_skipped"):
    """The character chose not to answer."""

    answers: str
    """The unanswered turn, or `wake:…` for a run that no message caused."""
    why: str = ""
    """The reason, if the model gave one."""


class DeskReacted(Payload, kind="desk_reacted"):
    """A character reacted to a message with an emoji."""

    turn: str
    """The turn it reacted to, or `wake:…` for a run that no message caused."""
    emoji: str
    """At most 16 characters."""


class DeskFilesSent(Payload, kind="desk_files_sent"):
    """A reply came with files of the workspace."""

    reply: str
    """The turn of the reply."""
    files: tuple[Attachment, ...]
    """The files, with their paths in the character's folder."""


class BranchStarted(Payload, kind="desk_branch_started", version=2):
    """A branch began to think about something on a copy of the conversation."""

    branch: str
    """The branch's id, unique in its room: `b` and eight characters."""
    thought: str
    """The question, in the words of the character."""
    at: int
    """The sequence number of the last line that it sees."""
    task_type: str = ""
    """The type of its task, which may have a model of its own (`models.tasks`)."""


class BranchEnded(Payload, kind="desk_branch_ended"):
    """A branch ended."""

    branch: str
    """The branch's id, unique in its room: `b` and eight characters."""
    state: BranchEnd
    """`stale` if its time ran out."""
    conclusion: str
    """The conclusion or the reason for its failure, without secrets."""


class WorkerStarted(Payload, kind="desk_worker_started", version=2):
    """A worker was started."""

    worker: str
    """The worker's id, unique in its room: `w` and eight characters."""
    task: str
    """The task; the worker sees nothing else."""
    interactive: bool = False
    """It accepts follow-ups after its answer."""
    by: str = ""
    """The branch that started it; empty for the channel."""
    task_type: str = ""
    """The type of its task, which may have a model of its own (`models.tasks`)."""


@upcaster("desk_branch_started", 1)
@upcaster("desk_worker_started", 1)
def _without_task_type(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had no types of tasks."""
    return {**fields, "task_type": ""}


class WorkerStepped(Payload, kind="desk_worker_stepped"):
    """A worker made one model turn with its tool calls."""

    worker: str
    """The worker's id, unique in its room: `w` and eight characters."""
    messages: tuple[PromptMessage, ...]
    """The message of the model, then the result of each tool."""
    status: str = ""
    """Its new status; empty: unchanged."""


class WorkerWaiting(Payload, kind="desk_worker_waiting"):
    """A worker waits for a follow-up or a confirmation."""

    worker: str
    """The worker's id, unique in its room: `w` and eight characters."""
    question: str
    """The question, or its answer if it waits for a follow-up."""
    said: PromptMessage
    """The message of the model; tool calls in it need a confirmation."""


class WorkerResumed(Payload, kind="desk_worker_resumed"):
    """A waiting worker got a follow-up, a permission or a refusal."""

    worker: str
    """The worker's id, unique in its room: `w` and eight characters."""
    text: str
    """The follow-up; empty for a confirmation."""
    allowed: bool | None = None
    """Whether the calls are allowed; None for a follow-up."""


class WorkerEnded(Payload, kind="desk_worker_ended"):
    """A worker ended."""

    worker: str
    """The worker's id, unique in its room: `w` and eight characters."""
    state: WorkerEnd
    """`failed` also if it hung or used up its turns."""
    result: str
    """The result or the reason for its failure, without secrets."""


class ResultsInjected(Payload, kind="desk_results_injected"):
    """Results were added to the conversation, each once."""

    results: tuple[str, ...]
    """Ids of the branches and workers."""
    text: str
    """All results, as the character reads them."""
    woke: bool
    """The results started the run of the channel, not a message."""


class HistoryCompacted(Payload, kind="desk_history_compacted"):
    """A summary replaces the oldest lines in prompts. The turns stay in the log."""

    upto: int
    """The sequence number of the last line that it replaces."""
    summary: str
    """The summary."""
    dropped: bool = False
    """The lines were dropped without a summary; the text is a marker."""


class ScheduleSet(Payload, kind="desk_schedule_set"):
    """A schedule was added or changed."""

    schedule: str
    """The schedule's id, unique in its room: `s` and eight characters."""
    prompt: str
    """The instruction for a run, which does not see the conversation."""
    when: ScheduleTime
    """When it is due."""
    next: datetime
    """The first due time."""
    to: RoomRef | None = None
    """The room on a surface that gets what the runs say; None: the rooms of the conversation."""


class ScheduleRan(Payload, kind="desk_schedule_ran", version=2):
    """A schedule ran."""

    schedule: str
    """The schedule's id, unique in its room: `s` and eight characters."""
    due: datetime
    """The due time; it may have run later."""
    end: RunEnd
    """`replied`, or `nothing` without a reply."""
    output: str = ""
    """The reply or the reason for its failure."""
    next: datetime | None = None
    """The next due time; None if there is none."""


@upcaster("desk_schedule_ran", 1)
def _rename_output(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 named the reply and the end with a reply `told`."""
    end = "replied" if fields["end"] == "told" else fields["end"]
    others = {name: value for name, value in fields.items() if name != "told"}
    return {**others, "end": end, "output": fields.get("told", "")}


class ScheduleSwitched(Payload, kind="desk_schedule_switched"):
    """A schedule was switched on or off, by a person or after three failures in a row."""

    schedule: str
    """The schedule's id, unique in its room: `s` and eight characters."""
    on: bool
    """Whether it is on."""
    why: str = ""
    """The last failure if failures switched it off; else empty."""
    next: datetime | None = None
    """The next due time; None if it is off."""


class ScheduleRemoved(Payload, kind="desk_schedule_removed"):
    """A schedule was removed."""

    schedule: str
    """The schedule's id, unique in its room: `s` and eight characters."""


class BulletinWritten(Payload, kind="desk_bulletin_written"):
    """The bulletin of a character for a person was rewritten, in the stream of the character."""

    character: str
    """The character's id."""
    person: str
    """The person it talks with; `you` is the owner."""
    text: str
    """At most 500 words; empty if no memory may be disclosed any more."""
    upto: int
    """The event id of the last memory change that it includes."""
    memories: tuple[str, ...] = ()
    """Its source memories; it is shown only while all of them may be disclosed."""


class SkillSwitched(Payload, kind="desk_skill_switched"):
    """A skill of a character was switched on or off."""

    character: str
    """The character's id."""
    skill: str
    """The name of its folder."""
    on: bool
    """Whether the character may read it."""


class CharacterAsked(Payload, kind="desk_character_asked"):
    """A character asked another one."""

    branch: str
    """The branch's id, unique in its room: `b` and eight characters."""
    asker: str
    """The id of the asking character."""
    asked: str
    """The id of the answering character."""
    question: str
    """The question."""
    answer: str
    """The answer without secrets, or `(no answer)`."""
