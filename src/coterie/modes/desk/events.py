"""What happens at the desk, beside the turns of the conversation themselves. All of it stands in the room's stream."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from coterie.kernel import Payload
from coterie.llm.messages import Message
from coterie.modes.desk.when import When

BranchEnd = Literal["done", "failed", "stale", "cancelled"]
WorkerEnd = Literal["done", "failed", "cancelled"]
RunEnd = Literal["told", "nothing", "failed"]


class DeskOpened(Payload, kind="desk_opened"):
    """A conversation with a character at work begins."""

    character: str
    person: str
    title: str = ""


class DeskRenamed(Payload, kind="desk_renamed"):
    """A conversation at the desk got another name."""

    title: str


class DeskSkipped(Payload, kind="desk_skipped"):
    """The character chose not to answer."""

    answers: str
    """The turn."""
    why: str = ""


class DeskReacted(Payload, kind="desk_reacted"):
    """A character reacted to a message with an emoji."""

    turn: str
    emoji: str


class BranchStarted(Payload, kind="desk_branch_started"):
    """The character thinks about something, with everything said so far in mind, while the conversation goes on."""

    branch: str
    thought: str
    at: int
    """The last of the conversation it knows, by its number in the stream."""


class BranchEnded(Payload, kind="desk_branch_ended"):
    """The conclusion of a branch, or why there is none."""

    branch: str
    state: BranchEnd
    conclusion: str


class WorkerStarted(Payload, kind="desk_worker_started"):
    """A worker begins a task."""

    worker: str
    task: str
    interactive: bool = False
    """It takes follow-ups: its answer is not its end."""
    by: str = ""
    """The branch that wanted it; empty for the conversation itself."""


class WorkerStepped(Payload, kind="desk_worker_stepped"):
    """One turn of a worker's model, and what its tools made of it."""

    worker: str
    messages: tuple[Message, ...]
    status: str = ""


class WorkerWaiting(Payload, kind="desk_worker_waiting"):
    """A worker waits for a follow-up, or for a person's yes."""

    worker: str
    question: str
    said: Message
    """What led here. With calls in it, it is these calls that need a yes."""


class WorkerResumed(Payload, kind="desk_worker_resumed"):
    """A worker that waited was told, allowed or refused, and goes on."""

    worker: str
    text: str
    allowed: bool | None = None
    """A person's yes or no; None for a follow-up, which is neither."""


class WorkerEnded(Payload, kind="desk_worker_ended"):
    """A worker's result, its failure, or that it was cancelled."""

    worker: str
    state: WorkerEnd
    result: str


class ResultsInjected(Payload, kind="desk_results_injected"):
    """Results became part of the conversation: each does so once."""

    results: tuple[str, ...]
    text: str
    woke: bool
    """The character looked up because of them, and not because somebody spoke."""


class HistoryCompacted(Payload, kind="desk_history_compacted"):
    """The oldest of the conversation is told by a summary from now on. The turns themselves stay in the log."""

    upto: int
    """The last turn that the summary stands for, by its number in the stream."""
    summary: str
    dropped: bool = False
    """There was no time for a summary: this is a marker."""


class ScheduleSet(Payload, kind="desk_schedule_set"):
    """Something is to be done at times, by itself, and told here. D15"""

    schedule: str
    prompt: str
    when: When
    next: datetime


class ScheduleRan(Payload, kind="desk_schedule_ran"):
    """Something on the timetable was done: what was said, or why it failed, and when it is due next."""

    schedule: str
    due: datetime
    end: RunEnd
    told: str = ""
    """What it said, or why it failed."""
    next: datetime | None = None
    """None: it does not run again by itself."""


class ScheduleSwitched(Payload, kind="desk_schedule_switched"):
    """Something on the timetable was switched on or off, by somebody or after three failures in a row."""

    schedule: str
    on: bool
    why: str = ""
    next: datetime | None = None


class ScheduleRemoved(Payload, kind="desk_schedule_removed"):
    """Something is off the timetable."""

    schedule: str


class BulletinWritten(Payload, kind="desk_bulletin_written"):
    """What a character should know now when it talks with somebody. It stands in a stream of its own. D8"""

    character: str
    person: str
    text: str
    upto: int
    """The last change of its memory that it knows of, by the event's number."""
    memories: tuple[str, ...] = ()
    """What it was made of: it is told only while all of them may be."""


class SkillSwitched(Payload, kind="desk_skill_switched"):
    """A skill of a character was switched on or off."""

    character: str
    skill: str
    on: bool


class CharacterAsked(Payload, kind="desk_character_asked"):
    """One character asked another. D23"""

    branch: str
    asker: str
    asked: str
    question: str
    answer: str
