"""Prompts of the desk's agents, with the status block of active and ended processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from coterie.base.clock import Clock
from coterie.base.untrusted import join_lines
from coterie.characters import Characters, PromptText, Workspaces, declare_prompt
from coterie.llm import PromptMessage
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

_MIN_BRANCH_AGE = timedelta(seconds=3)
_MAX_RESULT = 500


def status_block(processes: Sequence[Process], now: datetime) -> str:
    """Active processes and the latest results; empty if there are none."""
    workers = [_worker_line(process) for process in processes if process.kind == "worker" and process.active]
    branches = [
        f"[{process.id}] thinking about: {join_lines(process.task)}"
        for process in processes
        if process.kind == "branch" and process.active and now - process.started > _MIN_BRANCH_AGE
    ]
    done = [(process.ended, process.id, process) for process in processes if process.ended is not None]
    newest = sorted(done, reverse=True, key=lambda item: item[:2])[:COMPLETIONS]
    finished = [
        f"[{process.id}] {process.state}: {join_lines(process.task)} → {_shorten(process.result)}"
        for _, _, process in newest
    ]
    lines = [*workers, *branches, *finished]
    return mark_untrusted("\n".join(lines), "your desk") if lines else ""


def _worker_line(worker: Process) -> str:
    state = (
        f"waiting: {_shorten(worker.result)}"
        if worker.state == "waiting"
        else join_lines(worker.status) or worker.state
    )
    calls = "1 tool call" if worker.calls == 1 else f"{worker.calls} tool calls"
    return f"[{worker.id}] {join_lines(worker.task)} ({worker.started:%H:%M}, {calls}): {state}"


def _shorten(text: str) -> str:
    text = join_lines(text)
    return text if len(text) <= _MAX_RESULT else f"{text[: _MAX_RESULT - 1]}…"


_CHANNEL = declare_prompt(
    "channel",
    "Desk conversation",
    "How a character answers you at the desk and starts work.",
    "You are talking with a person. Answer at once with `reply`; never make them wait for work. Give work to "
    "`spawn_worker` (files, commands) and longer thinking to `branch`: both continue while you talk, and you receive "
    "their results. `route` answers a waiting worker; `cancel` ends one. Save what is worth keeping with "
    "`memory_save`. If no reply is needed, use `skip`.",
)
_SCHEDULED = declare_prompt(
    "scheduled",
    "Scheduled task",
    "How a character does what it scheduled, with nobody waiting.",
    "No person is waiting: you scheduled this task for this time. What you write with `reply` is sent to the person. "
    "If there is nothing to report, use `skip`.",
)
_BRANCH = declare_prompt(
    "branch",
    "Desk thinking",
    "How a character thinks something through beside the conversation.",
    "This is a separate thought about the conversation above, which no person reads. Think it through, look up what "
    "you need, and end with your conclusion in a few plain sentences: you will receive it in the conversation.",
)
_WORKER = declare_prompt(
    "worker",
    "Desk task",
    "How a worker does one task with its tools.",
    "You do one task with your tools and report. Work in small steps and look at what each one gives. Report with "
    "`set_status` what you are doing when it changes. When the task is done, answer with the result in plain words; if "
    "it cannot be done, say why.",
)
_SUMMARY_SHARE, _MEMORY_SHARE = 0.15, 0.1
"""Shares of the context window."""
_CHARACTERS_PER_TOKEN = 4
_MAX_MEMORY = 600
_LEFT_OUT = "[Earlier messages are left out here; `channel_recall` in a branch finds them.]"


class DeskPromptBuilder:
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
        """`window` returns the context window of the channel model in tokens."""
        self._queries = queries
        self._characters = characters
        self._workspaces = workspaces
        self._clock = clock
        self._bulletins = bulletins
        self._schedules = schedules
        self._skills = skills
        self._window = window

    def channel(self, chat: DeskChat, remembered: Sequence[str] = (), *, woke: bool = False) -> list[PromptMessage]:
        """The prompt of the channel; `remembered` are recalled memories.

        Unless a result woke it, the newest message of a person is last: results that were read while it arrived are
        stored after it, but it is not answered yet.
        """
        parts = [self._identity(chat), self._prompt(_CHANNEL, chat), UNTRUSTED_TEXT_RULE, *self._context(chat)]
        parts.append(self._memories(remembered))
        parts += [self._schedule_list(chat), self._summaries(chat), self.status(chat)]
        lines = self._queries.history(chat.room)
        messages = [i for i, line in enumerate(lines) if line.role == "user"]
        if messages and not woke:
            lines.append(lines.pop(messages[-1]))
        return [_system(parts), *(_message(line, chat) for line in lines)]

    def status(self, chat: DeskChat) -> str:
        return status_block(self._queries.status_processes(chat.room), self._clock.now())

    def scheduled(self, chat: DeskChat, prompt: str, remembered: Sequence[str] = ()) -> list[PromptMessage]:
        """The prompt of a due schedule, without the conversation."""
        parts = [
            self._identity(chat),
            self._prompt(_SCHEDULED, chat),
            UNTRUSTED_TEXT_RULE,
            *self._context(chat),
            self._memories(remembered),
        ]
        return [_system(parts), PromptMessage(role="user", text=prompt)]

    def branch(self, chat: DeskChat, branch: Process) -> list[PromptMessage]:
        """The prompt of a branch: the conversation up to its start."""
        parts = [self._identity(chat), UNTRUSTED_TEXT_RULE, self._summaries(chat)]
        thought = PromptMessage(role="user", text=f"{_BRANCH}\n\nThink about: {branch.task}")
        history = (_message(line, chat) for line in self._queries.history(chat.room, branch.at_seq))
        return [_system(parts), *history, thought]

    def worker(self, worker: Process, character: str) -> list[PromptMessage]:
        """The prompt of a worker: its task and its steps, without personality and conversation."""
        return [
            _system(
                [
                    self._workspaces.prompts(character).text(_WORKER),
                    UNTRUSTED_TEXT_RULE,
                    self._skills.prompt_text(character),
                ]
            ),
            PromptMessage(role="user", text=worker.task),
            *self._queries.worker_messages(worker.room, worker.id),
        ]

    def _prompt(self, prompt: PromptText, chat: DeskChat) -> str:
        return self._workspaces.prompts(chat.character).text(prompt)

    def _context(self, chat: DeskChat) -> list[str]:
        """The time, the bulletin and the list of skills."""
        bulletin = self._bulletins.text(chat)
        briefing = f"What you should know now:\n{mark_untrusted(bulletin, 'your memory')}" if bulletin else ""
        time = f"It is {self._clock.now():%A, %Y-%m-%d %H:%M} UTC."
        return [time, briefing, self._skills.prompt_text(chat.character)]

    def _memories(self, remembered: Sequence[str]) -> str:
        free = round(self._window() * _MEMORY_SHARE * _CHARACTERS_PER_TOKEN)
        kept: list[str] = []
        for text in remembered:
            line = f"- {join_lines(text)[:_MAX_MEMORY]}"
            if len(line) > free:
                break
            free -= len(line)
            kept.append(line)
        text = "\n".join(kept)
        return f"You remember:\n{mark_untrusted(text, 'your memory')}" if kept else ""

    def _schedule_list(self, chat: DeskChat) -> str:
        lines = [
            f"[{schedule.id}] {schedule.when.describe()}: {join_lines(schedule.prompt)[:200]}"
            for schedule in self._schedules.all(chat.room)
            if schedule.on
        ]
        return "Your schedules:\n" + "\n".join(lines) if lines else ""

    def _identity(self, chat: DeskChat) -> str:
        character = self._characters.get(chat.character)
        own = self._workspaces.texts(chat.character)
        persona = own.identity or character.identity.persona
        return "\n\n".join(
            part for part in (f"You are {join_lines(character.name)}.", persona, own.soul, own.user) if part
        )

    def _summaries(self, chat: DeskChat) -> str:
        summaries = _newest_texts(
            self._queries.summaries(chat.room), round(self._window() * _SUMMARY_SHARE * _CHARACTERS_PER_TOKEN)
        )
        return "Earlier in this conversation:\n" + "\n\n".join(summaries) if summaries else ""


def _newest_texts(texts: Sequence[str], size: int) -> list[str]:
    """As many of the newest texts as fit into `size` characters."""
    kept: list[str] = []
    for text in reversed(texts):
        if len(text) > size:
            return [_LEFT_OUT, *([text[:size]] if not kept else []), *kept]
        kept.insert(0, text)
        size -= len(text)
    return kept


def results_text(results: Sequence[Process]) -> str:
    """Results of processes as the text of one message."""
    lines = []
    for process in results:
        about = "waits and asks" if process.state == "waiting" else process.state
        lines.append(f"[{process.id}] {process.kind} {about}, on: {process.task}\n{process.result}")
    return "\n\n".join(lines)


def result_message(text: str) -> PromptMessage:
    return PromptMessage(
        role="user", text=f"(Results of your own work, which no person has seen.)\n{mark_untrusted(text, 'your desk')}"
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
