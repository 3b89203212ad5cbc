"""What happens at the desk, beside the turns of the conversation themselves. All of it stands in the room's stream."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coterie.base.errors import JobError
from coterie.eventstore import Payload
from coterie.eventstore.sqlite.jobs import Schedule
from coterie.llm.messages import PromptMessage
from coterie.modes.desk.errors import BadSchedule

# When something on the timetable is due: by cron expression, by interval, or once; within hours if any are given. D15
#
# Days and hours are those of the schedule's own time zone, so they follow its clock when that changes for summer. An
# interval is elapsed time, whatever clocks do.


_SHORTEST_S = 60.0
_FURTHEST = 3_000
"""Moments looked at for one within the active hours: two days of minutes, eight years of days."""


class ScheduleTime(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    cron: str = Field(default="", max_length=100)
    """Five fields, such as `0 8 * * 1-5`."""
    every_s: float | None = None
    """Seconds between two runs, at least 60."""
    at: datetime | None = None
    """Once, then; without an offset it is meant in the time zone."""
    zone: str = "UTC"
    """A name such as `Europe/Berlin`."""
    hours: str = Field(default="", pattern=r"^$|^\d\d:\d\d-\d\d:\d\d$")
    """When it may run, such as `08:00-22:00`; over midnight is fine. Empty: always."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum((bool(self.cron), self.every_s is not None, self.at is not None)) != 1:
            raise ValueError("it needs a cron expression, an interval or a moment, and only one of them")
        return self

    @property
    def once(self) -> bool:
        return self.at is not None

    def check(self) -> None:
        """Whether it is a time at all; `BadSchedule` tells what is wrong."""
        if self.every_s is not None and self.every_s < _SHORTEST_S:
            raise BadSchedule(f"It would run every {self.every_s:g} s.", f"Give it at least {_SHORTEST_S:.0f} s.")
        try:
            self._timer().validate() if self.at is None else Schedule(
                "once", "", every_s=1.0, zone=self.zone
            ).validate()
        except JobError as error:
            raise BadSchedule(error.what, error.fix) from None
        if self.hours:
            self._window()

    def due_after(self, moment: datetime) -> datetime | None:
        """The first moment after this one; None when there is none any more."""
        if self.at is not None:
            at = self.at if self.at.tzinfo is not None else self.at.replace(tzinfo=ZoneInfo(self.zone))
            return at.astimezone(UTC) if at > moment else None
        due = moment
        for _ in range(_FURTHEST):
            try:
                due = self._timer().next_after(due).astimezone(UTC)
            except StopIteration:
                break
            if self._within(due):
                return due
        raise BadSchedule("This moment never comes.", "Look at its days, and at its hours.")

    def describe(self) -> str:
        """In a few words, for people and models."""
        if self.at is not None:
            said = f"once, at {self.at:%Y-%m-%d %H:%M}"
        elif self.cron:
            said = f"cron {self.cron}"
        else:
            said = f"every {(self.every_s or 0) / 60:g} min"
        return f"{said} ({self.zone}{f', {self.hours}' if self.hours else ''})"

    def _timer(self) -> Schedule:
        return Schedule("desk", "", self.cron or None, self.every_s, self.zone)

    def _within(self, moment: datetime) -> bool:
        if not self.hours:
            return True
        first, last = self._window()
        now = moment.astimezone(ZoneInfo(self.zone)).time()
        return first <= now < last if first <= last else now >= first or now < last

    def _window(self) -> tuple[time, time]:
        try:
            first, last = (time.fromisoformat(part) for part in self.hours.split("-"))
        except ValueError:
            raise BadSchedule(f"{self.hours} are not hours of a day.", "Write them as 08:00-22:00.") from None
        return first, last


BranchEnd = Literal["done", "failed", "stale", "cancelled"]
WorkerEnd = Literal["done", "failed", "cancelled"]
RunEnd = Literal["told", "nothing", "failed"]


class DeskOpened(Payload, kind="desk_opened"):
    """A conversation with a character at work begins."""

    character: str
    """The character's id."""
    person: str
    """Whose conversation it is: a person's id; `you` is the owner."""
    title: str = ""
    """The name it was given; empty: it goes by the character's."""


class DeskRenamed(Payload, kind="desk_renamed"):
    """A conversation at the desk got another name."""

    title: str
    """What it is called from now on."""


class DeskSkipped(Payload, kind="desk_skipped"):
    """The character chose not to answer."""

    answers: str
    """The turn it leaves unanswered; `wake:…` where it looked up by itself."""
    why: str = ""
    """Its reason, if it gave one."""


class DeskReacted(Payload, kind="desk_reacted"):
    """A character reacted to a message with an emoji."""

    turn: str
    """The turn it reacted to; `wake:…` where it looked up by itself."""
    emoji: str
    """As the model gave it, at most 16 characters."""


class BranchStarted(Payload, kind="desk_branch_started"):
    """The character thinks about something, with everything said so far in mind, while the conversation goes on."""

    branch: str
    """The branch's id, made anew in every room: `b` and eight characters."""
    thought: str
    """What it is to think about, in the character's words."""
    at: int
    """The last of the conversation it knows, by its number in the stream."""


class BranchEnded(Payload, kind="desk_branch_ended"):
    """The conclusion of a branch, or why there is none."""

    branch: str
    """The branch's id, made anew in every room: `b` and eight characters."""
    state: BranchEnd
    """`stale` where its time was up."""
    conclusion: str
    """What it came to, or why to nothing; secrets covered."""


class WorkerStarted(Payload, kind="desk_worker_started"):
    """A worker begins a task."""

    worker: str
    """The worker's id, made anew in every room: `w` and eight characters."""
    task: str
    """All that it is told; it knows nothing else."""
    interactive: bool = False
    """It takes follow-ups: its answer is not its end."""
    by: str = ""
    """The branch that wanted it; empty for the conversation itself."""


class WorkerStepped(Payload, kind="desk_worker_stepped"):
    """One turn of a worker's model, and what its tools made of it."""

    worker: str
    """The worker's id, made anew in every room: `w` and eight characters."""
    messages: tuple[PromptMessage, ...]
    """What its model said, then what each of its tools answered."""
    status: str = ""
    """What it is at, in its words; empty: as before."""


class WorkerWaiting(Payload, kind="desk_worker_waiting"):
    """A worker waits for a follow-up, or for a person's yes."""

    worker: str
    """The worker's id, made anew in every room: `w` and eight characters."""
    question: str
    """What it asks, or its answer where it waits for a follow-up."""
    said: PromptMessage
    """What led here. With calls in it, it is these calls that need a yes."""


class WorkerResumed(Payload, kind="desk_worker_resumed"):
    """A worker that waited was told, allowed or refused, and goes on."""

    worker: str
    """The worker's id, made anew in every room: `w` and eight characters."""
    text: str
    """The follow-up; empty for a yes or no."""
    allowed: bool | None = None
    """A person's yes or no; None for a follow-up, which is neither."""


class WorkerEnded(Payload, kind="desk_worker_ended"):
    """A worker's result, its failure, or that it was cancelled."""

    worker: str
    """The worker's id, made anew in every room: `w` and eight characters."""
    state: WorkerEnd
    """`failed` also where it hung or used up its turns."""
    result: str
    """What came of it, or why nothing did; secrets masked."""


class ResultsInjected(Payload, kind="desk_results_injected"):
    """Results became part of the conversation: each does so once."""

    results: tuple[str, ...]
    """The branches and workers they are of, by id."""
    text: str
    """All of them, as the character reads them."""
    woke: bool
    """The character looked up because of them, and not because somebody spoke."""


class HistoryCompacted(Payload, kind="desk_history_compacted"):
    """The oldest of the conversation is told by a summary from now on. The turns themselves stay in the log."""

    upto: int
    """The last turn that the summary stands for, by its number in the stream."""
    summary: str
    """What is told in place of those turns."""
    dropped: bool = False
    """There was no time for a summary: this is a marker."""


class ScheduleSet(Payload, kind="desk_schedule_set"):
    """Something is to be done at times, by itself, and told here. D15"""

    schedule: str
    """The schedule's id, made anew in every room: `s` and eight characters."""
    prompt: str
    """What the character is told when it is due, without the conversation."""
    when: ScheduleTime
    """By cron, by interval or once; in which zone and hours."""
    next: datetime
    """When it is due first."""


class ScheduleRan(Payload, kind="desk_schedule_ran"):
    """Something on the timetable was done: what was said, or why it failed, and when it is due next."""

    schedule: str
    """The schedule's id, made anew in every room: `s` and eight characters."""
    due: datetime
    """When it was due; it may have run later."""
    end: RunEnd
    """`nothing` where it had nothing to say."""
    told: str = ""
    """What it said, or why it failed."""
    next: datetime | None = None
    """None: it does not run again by itself."""


class ScheduleSwitched(Payload, kind="desk_schedule_switched"):
    """Something on the timetable was switched on or off, by somebody or after three failures in a row."""

    schedule: str
    """The schedule's id, made anew in every room: `s` and eight characters."""
    on: bool
    """Whether it runs from now on."""
    why: str = ""
    """The last failure, where failures switched it off; else empty."""
    next: datetime | None = None
    """When it is due next; None where it is switched off."""


class ScheduleRemoved(Payload, kind="desk_schedule_removed"):
    """Something is off the timetable."""

    schedule: str
    """The schedule's id, made anew in every room: `s` and eight characters."""


class BulletinWritten(Payload, kind="desk_bulletin_written"):
    """What a character should know now when it talks with somebody. It stands in a stream of its own. D8"""

    character: str
    """The character's id."""
    person: str
    """Whom it talks with: a person's id; `you` is the owner."""
    text: str
    """At most 500 words; empty where there is nothing to tell any more."""
    upto: int
    """The last change of its memory that it knows of, by the event's number."""
    memories: tuple[str, ...] = ()
    """What it was made of: it is told only while all of them may be."""


class SkillSwitched(Payload, kind="desk_skill_switched"):
    """A skill of a character was switched on or off."""

    character: str
    """The character's id."""
    skill: str
    """The name of its folder."""
    on: bool
    """Whether it may be read from now on."""


class CharacterAsked(Payload, kind="desk_character_asked"):
    """One character asked another. D23"""

    branch: str
    """The branch's id, made anew in every room: `b` and eight characters."""
    asker: str
    """Who asked: a character's id."""
    asked: str
    """Who answered: a character's id."""
    question: str
    """In the asker's words."""
    answer: str
    """In the other's words, secrets covered; `(no answer)` for none."""
