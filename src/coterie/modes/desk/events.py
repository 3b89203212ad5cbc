"""What happens at the desk, beside the turns of the conversation themselves. All of it stands in the room's stream."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from coterie.kernel import Payload
from coterie.llm.messages import PromptMessage
from coterie.modes.desk.when import ScheduleTime

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
