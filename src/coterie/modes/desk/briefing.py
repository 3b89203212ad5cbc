"""What the character at the desk is told: who it is, how the desk works, what is going on, and the conversation."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.base.clock import Clock
from coterie.cast.roster import Roster
from coterie.cast.workspace import Workspaces
from coterie.llm.messages import Message
from coterie.modes.desk.marking import RULE, as_data
from coterie.modes.desk.officebook import DeskChat, Line, OfficeBook, Process
from coterie.modes.desk.status import status_block

_CHANNEL = (
    "You are talking with a person. Answer at once with `reply`; never make them wait for work. Give work to "
    "`spawn_worker` (files, commands) and longer thinking to `branch`: both go on while you talk, and what comes of "
    "them is brought to you. `route` answers a worker that waits; `cancel` ends one. Save what is worth keeping with "
    "`memory_save`. If nothing needs saying, use `skip`."
)
_BRANCH = (
    "This is a quiet moment of thought, apart from the conversation above. Nobody hears you. Think it through, look "
    "up what you need, and end with your conclusion in a few plain sentences: it will be brought to you there."
)
_WORKER = (
    "You do one task with your tools and report. Work in small steps and look at what each one gives. Say with "
    "`set_status` what you are at when it changes. When the task is done, answer with the result in plain words; if it "
    "cannot be done, say why."
)


class Briefing:
    def __init__(self, book: OfficeBook, roster: Roster, workspaces: Workspaces, clock: Clock) -> None:
        self._book = book
        self._roster = roster
        self._workspaces = workspaces
        self._clock = clock

    def channel(self, chat: DeskChat, extra: Sequence[str] = ()) -> list[Message]:
        now = self._clock.now()
        status = status_block(self._book.processes(chat.room), now)
        clock = f"It is {now:%A, %Y-%m-%d %H:%M} UTC."
        told = [self._identity(chat), _CHANNEL, RULE, clock, *extra, self._summaries(chat), status]
        return [_system(told), *self._history(chat, None)]

    def branch(self, chat: DeskChat, branch: Process) -> list[Message]:
        """A clone of the conversation as it was at the fork."""
        told = [self._identity(chat), RULE, self._summaries(chat)]
        thought = Message(role="user", text=f"{_BRANCH}\n\nThink about: {branch.task}")
        return [_system(told), *self._history(chat, branch.at_seq), thought]

    def worker(self, worker: Process) -> list[Message]:
        """No personality, no conversation: the task, and what was done about it so far."""
        return [
            _system([_WORKER, RULE]),
            Message(role="user", text=worker.task),
            *self._book.steps(worker.room, worker.id),
        ]

    def _identity(self, chat: DeskChat) -> str:
        bot = self._roster.bot(chat.character)
        own = self._workspaces.own_words(chat.character)
        persona = own.identity or bot.identity.persona
        return "\n\n".join(part for part in (f"You are {bot.name}.", persona, own.soul, own.user) if part)

    def _summaries(self, chat: DeskChat) -> str:
        told = self._book.summaries(chat.room)
        return "Earlier in this conversation:\n" + "\n\n".join(told) if told else ""

    def _history(self, chat: DeskChat, upto: int | None) -> list[Message]:
        return [_message(line, chat) for line in self._book.history(chat.room, upto)]


def results_text(results: Sequence[Process]) -> str:
    """What came of it, as one message of its own."""
    lines = []
    for process in results:
        about = "waits and asks" if process.state == "waiting" else process.state
        lines.append(f"[{process.id}] {process.kind} {about}, on: {process.task}\n{process.result}")
    return "\n\n".join(lines)


def result_message(text: str) -> Message:
    return Message(role="user", text=f"(Nobody spoke: this came from your desk.)\n{as_data(text, 'your desk')}")


def _message(line: Line, chat: DeskChat) -> Message:
    if line.role == "assistant":
        return Message(role="assistant", text=line.text)
    if line.role == "result":
        return result_message(line.text)
    if line.speaker in ("", chat.person):
        return Message(role="user", text=line.text)
    return Message(role="user", text=as_data(line.text, line.speaker))


def _system(parts: Sequence[str]) -> Message:
    return Message(role="system", text="\n\n".join(part for part in parts if part))
