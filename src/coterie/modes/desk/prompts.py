"""The status block: what the character has going on, in every prompt of its conversation. D4"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from coterie.base.clock import Clock
from coterie.characters.service import Characters
from coterie.characters.workspace import Workspaces
from coterie.llm.messages import PromptMessage
from coterie.modes.desk.queries import (
    COMPLETIONS,
    BulletinQueries,
    DeskChat,
    DeskQueries,
    HistoryEntry,
    Process,
    ScheduleQueries,
)
from coterie.modes.desk.skills import Skills
from coterie.modes.desk.text_safety import UNTRUSTED_TEXT_RULE, mark_untrusted

_YOUNG = timedelta(seconds=3)
_LONGEST = 500


def status_block(processes: Sequence[Process], now: datetime) -> str:
    """Empty where nothing is going on and nothing was finished."""
    working = [_working(process) for process in processes if process.kind == "worker" and process.active]
    thinking = [
        f"[{process.id}] thinking about: {process.task}"
        for process in processes
        if process.kind == "branch" and process.active and now - process.started > _YOUNG
    ]
    done = [(process.ended, process.id, process) for process in processes if process.ended is not None]
    newest = sorted(done, reverse=True, key=lambda each: each[:2])[:COMPLETIONS]
    finished = [f"[{each.id}] {each.state}: {each.task} → {_cut(each.result)}" for _, _, each in newest]
    lines = [*working, *thinking, *finished]
    return mark_untrusted("\n".join(lines), "your desk") if lines else ""


def _working(worker: Process) -> str:
    told = f"waiting: {_cut(worker.result)}" if worker.state == "waiting" else worker.status or worker.state
    calls = "1 tool call" if worker.calls == 1 else f"{worker.calls} tool calls"
    return f"[{worker.id}] {worker.task} ({worker.started:%H:%M}, {calls}): {told}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


# What the character at the desk is told: who it is, how the desk works, what is going on, and the conversation.


_CHANNEL = (
    "You are talking with a person. Answer at once with `reply`; never make them wait for work. Give work to "
    "`spawn_worker` (files, commands) and longer thinking to `branch`: both go on while you talk, and what comes of "
    "them is brought to you. `route` answers a worker that waits; `cancel` ends one. Save what is worth keeping with "
    "`memory_save`. If nothing needs saying, use `skip`."
)
_SCHEDULED = (
    "Nobody is waiting: this is something that you set yourself to do at this time. What you say with `reply` is "
    "brought to the person. If there is nothing worth telling, use `skip`."
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
_SUMMARIES = 0.15
_LETTERS = 4
"""Summaries may take so much of what the model can hold, at about so many letters a token."""
_REMEMBERED = 0.1
"""What comes to mind may take this share."""
_LONGEST_MEMORY = 600
_LEFT_OUT = "[What came before is left out here; `channel_recall` in a branch finds it.]"


class PromptBuilder:
    def __init__(
        self,
        queries: DeskQueries,
        characters: Characters,
        workspaces: Workspaces,
        clock: Clock,
        bulletins: BulletinQueries,
        schedules: ScheduleQueries,
        skills: Skills,
        window: Callable[[], int],
    ) -> None:
        """`window` tells how many tokens the model can hold."""
        self._queries = queries
        self._characters = characters
        self._workspaces = workspaces
        self._clock = clock
        self._bulletins = bulletins
        self._schedules = schedules
        self._skills = skills
        self._window = window

    def channel(self, chat: DeskChat, remembered: Sequence[str] = ()) -> list[PromptMessage]:
        """`remembered` is what comes to its mind of other times and places, by what was last said."""
        told = [self._identity(chat), _CHANNEL, UNTRUSTED_TEXT_RULE, *self._at_hand(chat), self._memories(remembered)]
        now = [self._timetable(chat), self._summaries(chat), self.status(chat)]
        return [_system([*told, *now]), *self._history(chat, None)]

    def status(self, chat: DeskChat) -> str:
        return status_block(self._queries.status_processes(chat.room), self._clock.now())

    def scheduled(self, chat: DeskChat, prompt: str, remembered: Sequence[str] = ()) -> list[PromptMessage]:
        """A fresh channel: who it is, and what it set itself to do. D15"""
        told = [self._identity(chat), _SCHEDULED, UNTRUSTED_TEXT_RULE, *self._at_hand(chat), self._memories(remembered)]
        return [_system(told), PromptMessage(role="user", text=prompt)]

    def branch(self, chat: DeskChat, branch: Process) -> list[PromptMessage]:
        """A clone of the conversation as it was at the fork."""
        told = [self._identity(chat), UNTRUSTED_TEXT_RULE, self._summaries(chat)]
        thought = PromptMessage(role="user", text=f"{_BRANCH}\n\nThink about: {branch.task}")
        return [_system(told), *self._history(chat, branch.at_seq), thought]

    def worker(self, worker: Process, character: str) -> list[PromptMessage]:
        """No personality, no conversation: the task, and what was done about it so far."""
        return [
            _system([_WORKER, UNTRUSTED_TEXT_RULE, self._skills.prompt_text(character)]),
            PromptMessage(role="user", text=worker.task),
            *self._queries.worker_messages(worker.room, worker.id),
        ]

    def _at_hand(self, chat: DeskChat) -> list[str]:
        """The time, what the character should know now, and what it can read up on."""
        bulletin = self._bulletins.text(chat)
        known = f"What you should know now:\n{mark_untrusted(bulletin, 'your memory')}" if bulletin else ""
        return [f"It is {self._clock.now():%A, %Y-%m-%d %H:%M} UTC.", known, self._skills.prompt_text(chat.character)]

    def _memories(self, remembered: Sequence[str]) -> str:
        room = round(self._window() * _REMEMBERED * _LETTERS)
        kept: list[str] = []
        for text in remembered:
            line = f"- {text[:_LONGEST_MEMORY]}"
            if len(line) > room:
                break
            room -= len(line)
            kept.append(line)
        told = "\n".join(kept)
        return f"You remember:\n{mark_untrusted(told, 'your memory')}" if kept else ""

    def _timetable(self, chat: DeskChat) -> str:
        lines = [
            f"[{each.id}] {each.when.describe()}: {each.prompt[:200]}"
            for each in self._schedules.all(chat.room)
            if each.on
        ]
        return "On your timetable:\n" + "\n".join(lines) if lines else ""

    def _identity(self, chat: DeskChat) -> str:
        bot = self._characters.get(chat.character)
        own = self._workspaces.texts(chat.character)
        persona = own.identity or bot.identity.persona
        return "\n\n".join(part for part in (f"You are {bot.name}.", persona, own.soul, own.user) if part)

    def _summaries(self, chat: DeskChat) -> str:
        told = _newest(self._queries.summaries(chat.room), round(self._window() * _SUMMARIES * _LETTERS))
        return "Earlier in this conversation:\n" + "\n\n".join(told) if told else ""

    def _history(self, chat: DeskChat, upto: int | None) -> list[PromptMessage]:
        return [_message(line, chat) for line in self._queries.history(chat.room, upto)]


def _newest(told: Sequence[str], letters: int) -> list[str]:
    """As many of the newest as there is room for: a conversation of years has hundreds."""
    kept: list[str] = []
    for text in reversed(told):
        if len(text) > letters:
            return [_LEFT_OUT, *([text[:letters]] if not kept else []), *kept]
        kept.insert(0, text)
        letters -= len(text)
    return kept


def results_text(results: Sequence[Process]) -> str:
    """What came of it, as one message of its own."""
    lines = []
    for process in results:
        about = "waits and asks" if process.state == "waiting" else process.state
        lines.append(f"[{process.id}] {process.kind} {about}, on: {process.task}\n{process.result}")
    return "\n\n".join(lines)


def result_message(text: str) -> PromptMessage:
    return PromptMessage(
        role="user", text=f"(Nobody spoke: this came from your desk.)\n{mark_untrusted(text, 'your desk')}"
    )


def _message(line: HistoryEntry, chat: DeskChat) -> PromptMessage:
    if line.role == "assistant":
        return PromptMessage(role="assistant", text=line.text)
    if line.role == "result":
        return result_message(line.text)
    if line.speaker in ("", chat.person):
        return PromptMessage(role="user", text=line.text)
    return PromptMessage(role="user", text=mark_untrusted(line.text, line.speaker))


def _system(parts: Sequence[str]) -> PromptMessage:
    return PromptMessage(role="system", text="\n\n".join(part for part in parts if part))
