"""What one look at the conversation leads to, gathered and recorded together when it ends.

A crash before that costs a repetition; nothing of it is said or begun twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coterie.base.ids import new_id
from coterie.engine.events import AssistantTurn, AssistantTurnStarted
from coterie.kernel import Draft, NewJob, Payload
from coterie.kernel.worker import Outcome
from coterie.memory.recall import Recalled
from coterie.memory.record import MemoryType
from coterie.memory.writing import NewMemory
from coterie.modes.desk.events import BranchStarted, DeskReacted, DeskSkipped, ResultsInjected, WorkerStarted
from coterie.modes.desk.officebook import DeskChat, Process

BRANCH, WORKER, WAKE, MESSAGE = "desk_branch", "desk_worker", "desk_wake", "desk_message"
COMPACT, TELL, SCHEDULE = "desk_compact", "desk_tell", "desk_schedule"
PERSON_WAITS, LOOKS_UP, THINKS, WORKS = 10, 5, 3, 0
"""Priorities of jobs."""
DEBOUNCE_S = 0.5
WOKEN = "wake:"
"""What the id of a look begins with that nobody asked for."""


@dataclass
class Errand:
    chat: DeskChat
    answers: str
    """The turn it is about; for a wake an id of its own, which begins with `WOKEN`."""
    said: list[str] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    jobs: list[NewJob] = field(default_factory=list)
    skipped: bool = False
    branches: int = 0
    private: bool = False
    """Whether something private came to mind: what is kept of it then is private too. M2"""

    @property
    def answered(self) -> bool:
        return bool(self.said) or self.skipped

    def bring_to_mind(self, recalled: Sequence[Recalled]) -> None:
        self.private = self.private or any(one.memory.private for one in recalled)

    def memory(self, text: str, kind: MemoryType) -> NewMemory:
        """Something that it wants to keep of this look."""
        chat = self.chat
        return NewMemory(text, chat.character, chat.room, type=kind, sources=(self.answers,), private=self.private)

    def inject(self, results: Sequence[Process], text: str, *, woke: bool) -> None:
        ids = tuple(process.id for process in results)
        self.add(ResultsInjected(results=ids, text=text, woke=woke))

    def branch(self, thought: str, at: int) -> str:
        name = short_id("b")
        self.add(BranchStarted(branch=name, thought=thought, at=at))
        self.jobs.append(NewJob(BRANCH, f"{BRANCH}:{name}", {"room": self.chat.room, "branch": name}, priority=THINKS))
        self.branches += 1
        return name

    def hire(self, task: str, interactive: bool, by: str = "") -> str:
        name = short_id("w")
        self.add(WorkerStarted(worker=name, task=task, interactive=interactive, by=by))
        self.jobs.append(work_job(self.chat.room, name, 0))
        return name

    def skip(self, why: str) -> None:
        self.skipped = True
        self.add(DeskSkipped(answers=self.answers, why=why))

    def react(self, emoji: str) -> None:
        self.add(DeskReacted(turn=self.answers, emoji=emoji))

    def outcome(self, model: str = "", trouble: str = "") -> Outcome:
        """Everything, the reply last: whoever reads it can rely on the rest being there."""
        drafts = list(self.drafts)
        if self.said or trouble:
            reply = new_id()
            who = self.chat.character
            to = None if self.answers.startswith(WOKEN) else self.answers
            begun = AssistantTurnStarted(reply=reply, speaker=who, answers=to)
            ended = AssistantTurn(
                reply=reply, text="\n\n".join(self.said), truncated=bool(trouble), why=trouble, model=model
            )
            drafts.append(Draft(self.chat.room, begun, who, turn=reply))
            drafts.append(Draft(self.chat.room, ended, who, turn=reply))
            if to is None:  # nobody waits for it on the surface it was asked from
                told = {"room": self.chat.room, "reply": reply}
                return Outcome(drafts, [*self.jobs, NewJob(TELL, f"{TELL}:{reply}", told, priority=PERSON_WAITS)])
        return Outcome(drafts, self.jobs)

    def add(self, payload: Payload) -> None:
        self.drafts.append(Draft(self.chat.room, payload, self.chat.character))


def work_job(room: str, worker: str, after: object) -> NewJob:
    """The next turn of a worker, after so many, or after a word from outside."""
    return NewJob(WORKER, f"{WORKER}:{room}:{worker}:{after}", {"room": room, "worker": worker}, priority=WORKS)


def wake_job(room: str, result: str, mark: object) -> NewJob:
    """Look up in a moment: perhaps more arrives meanwhile."""
    return NewJob(WAKE, f"{WAKE}:{room}:{result}:{mark}", {"room": room}, delay_s=DEBOUNCE_S, priority=LOOKS_UP)


def short_id(letter: str) -> str:
    """Short enough for a model to copy, and made anew in every room."""
    return f"{letter}{new_id()[-8:].lower()}"
