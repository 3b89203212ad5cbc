"""The channel: the agent that talks with people and hands work to branches and workers.

A message or a result starts one run of at most `MAX_TURNS` model calls. Everything that it causes is stored together
when it ends, and nothing in it waits for other agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field, ValidationError

from coterie.base.clock import Clock
from coterie.base.redaction import REDACTED, redact
from coterie.base.values import MAX_DURATION_S, Time
from coterie.eventstore import Job, JobResult
from coterie.llm import Caller, ModelError, Prompt, PromptMessage, Role
from coterie.memory import MemoryType
from coterie.modes.desk.agents.maintenance import Compactor
from coterie.modes.desk.agents.processes import AgentDeps, TaskType
from coterie.modes.desk.agents.tools import AgentTool, Toolbox, make_tool
from coterie.modes.desk.errors import BadSchedule, BadTool, Leak
from coterie.modes.desk.events import ScheduleRemoved, ScheduleTime
from coterie.modes.desk.jobs import DEBOUNCE_S, WAKE_PREFIX, ChannelOutcome, message_key, plan_schedule
from coterie.modes.desk.prompts import result_message, results_text
from coterie.modes.desk.queries import Audience, DeskChat
from coterie.modes.desk.text_safety import LeakGuard

MAX_BRANCHES = 5
MAX_SCHEDULES = 20
MAX_FILES = 10
_PREVIEW_EVERY_S = 0.2
_HELD_BACK = 256
"""An encoded secret is found when all of it has arrived, so that this much text is not shown before."""
_MAX_CHECKED = 1_000_000
"""This many bytes of a file are searched for secrets."""


class ReplyPreviews:
    """The text of replies while they are written, for surfaces that show it at once. It is shown only after a secret in
    it would have been found."""

    def __init__(self, guard: LeakGuard) -> None:
        self._guard = guard
        self._listeners: dict[str, list[asyncio.Queue[str]]] = {}
        self._checked_at: dict[str, float] = {}

    @contextmanager
    def listening(self, turn: str) -> Iterator[asyncio.Queue[str]]:
        """A queue of all the text so far, each time it grows, of the reply to this message."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        self._listeners.setdefault(turn, []).append(queue)
        try:
            yield queue
        finally:
            self._listeners[turn].remove(queue)
            if not self._listeners[turn]:
                del self._listeners[turn]
                self._checked_at.pop(turn, None)

    def show_beginning(self, turn: str, text: str) -> None:
        """Show what can be shown of an unfinished text."""
        now = asyncio.get_running_loop().time()
        if turn not in self._listeners or now - self._checked_at.get(turn, 0.0) < _PREVIEW_EVERY_S:
            return
        self._checked_at[turn] = now
        shown = text[: max(len(text) - _HELD_BACK, 0)]
        shown = shown[: max(shown.rfind(" "), shown.rfind("\n")) + 1]
        if shown.strip() and REDACTED not in text and not self._guard.has_secret(text):
            self.show(turn, shown)

    def show(self, turn: str, text: str) -> None:
        """Show checked text."""
        for queue in self._listeners.get(turn, ()):
            queue.put_nowait(text)


def channel_tools(
    deps: AgentDeps, chat: DeskChat, outcome: ChannelOutcome, now: datetime, *, scheduled: bool = False
) -> list[AgentTool]:
    """A scheduled run cannot add schedules."""
    tools = [
        *_reply_tools(deps, chat, outcome),
        *_process_tools(deps, chat, outcome),
        *_memory_tools(deps, chat, outcome),
    ]
    return tools if scheduled else [*tools, _schedule_tool(deps, chat, outcome, now)]


def _reply_tools(deps: AgentDeps, chat: DeskChat, outcome: ChannelOutcome) -> Sequence[AgentTool]:
    async def reply(text: Annotated[str, Field(min_length=1)]) -> str:
        """Say something to the person, now."""
        try:
            deps.guard.check(text, "the reply")
        except Leak as leak:
            return f"Error: {leak}"
        outcome.replies.append(text)
        return "Sent."

    async def send_file(
        path: Annotated[str, Field(min_length=1, description="Relative to the workspace, such as report.pdf.")],
    ) -> str:
        """Send a file of the workspace to the person, with your reply."""
        if len(outcome.files) >= MAX_FILES:
            raise BadTool(f"{MAX_FILES} files come with this reply already.", "Send the others next time.")
        file, beginning = await asyncio.to_thread(deps.file_to_send, chat.room, path, _MAX_CHECKED)
        deps.guard.check(f"{file.name}\n{beginning.decode(errors='replace')}", "the file")
        if all(file.path != sent.path for sent in outcome.files):
            outcome.files.append(file)
        return "It is sent with your reply."

    async def skip(why: str = "") -> str:
        """Say nothing this time."""
        outcome.skip(why)
        return "No reply is sent."

    async def react(emoji: Annotated[str, Field(min_length=1, max_length=16)]) -> str:
        """React to the message with an emoji."""
        outcome.react(emoji)
        return "Reacted."

    return [make_tool(reply), make_tool(send_file), make_tool(skip), make_tool(react)]


def _process_tools(deps: AgentDeps, chat: DeskChat, outcome: ChannelOutcome) -> Sequence[AgentTool]:
    async def branch(
        thought: Annotated[str, Field(min_length=1, description="What to think about.")],
        type: TaskType = "",  # noqa: A002
    ) -> str:
        """Think about something longer, while the conversation goes on. You receive the conclusion."""
        running = deps.queries.running_branches(chat.room) + outcome.branches
        if running >= MAX_BRANCHES:
            raise BadTool(f"You are thinking about {running} things already.", "Wait for one, or cancel one.")
        seen = deps.queries.last_history_seq(chat.room)
        return f"Started as {outcome.start_branch(thought, seen, deps.known_task_type(type))}."

    async def spawn_worker(
        task: Annotated[str, Field(min_length=1, description="Everything needed to do it: it knows nothing else.")],
        interactive: Annotated[bool, Field(description="Keep it, to give it follow-ups.")] = False,
        type: TaskType = "",  # noqa: A002
    ) -> str:
        """Have work done with files and commands, while the conversation goes on. You receive the result."""
        return f"Started as {outcome.start_worker(task, interactive, task_type=deps.known_task_type(type))}."

    async def route(worker: str, text: Annotated[str, Field(min_length=1)]) -> str:
        """Give a waiting worker its follow-up."""
        resumed, job = deps.processes.plan_follow_up(
            chat.room, worker, text, key_suffix=outcome.answers, actor=chat.character
        )
        outcome.new_events.append(resumed)
        outcome.jobs.append(job)
        return "Passed on."

    async def cancel(process: Annotated[str, Field(description="The id of a worker, a branch or a schedule.")]) -> str:
        """End a worker or a branch in any state, or remove a schedule."""
        if deps.schedules.find(chat.room, process) is not None:
            outcome.add_event(ScheduleRemoved(schedule=process))
        else:
            await deps.processes.cancel(chat.room, process)
        return "Ended."

    return [
        deps.with_task_types(make_tool(branch)),
        deps.with_task_types(make_tool(spawn_worker)),
        make_tool(route),
        make_tool(cancel),
    ]


def _memory_tools(deps: AgentDeps, chat: DeskChat, outcome: ChannelOutcome) -> Sequence[AgentTool]:
    async def memory_save(text: Annotated[str, Field(min_length=1)], type: MemoryType = "fact") -> str:  # noqa: A002
        """Remember something, from your point of view."""
        memory = outcome.new_memory(text, type)
        outcome.new_events += deps.processes.memory_events(chat, memory)
        return "Remembered."

    async def read_skill(name: str, file: str = "SKILL.md") -> str:
        """The instructions of one of your skills, or another of its files."""
        return deps.skills.read(chat.character, name, file)

    tools = [make_tool(memory_save)]
    return [*tools, make_tool(read_skill)] if deps.skills.prompt_text(chat.character) else tools


def _schedule_tool(deps: AgentDeps, chat: DeskChat, outcome: ChannelOutcome, now: datetime) -> AgentTool:
    async def schedule(
        prompt: Annotated[
            str,
            Field(min_length=1, description="The instruction you receive when it is due, without this conversation."),
        ],
        cron: Annotated[str, Field(description="Five fields, such as 0 8 * * 1-5, for repeated runs.")] = "",
        every_minutes: Annotated[
            float | None, Field(description="Instead of cron.", ge=1, le=MAX_DURATION_S / 60)
        ] = None,
        at: Annotated[Time | None, Field(description="Instead of cron: once, then.")] = None,
        zone: Annotated[str, Field(description="A time zone such as Europe/Berlin.")] = "UTC",
        hours: Annotated[str, Field(description="When it may run, such as 08:00-22:00.")] = "",
        to: Annotated[
            str, Field(description="A room of the person, such as telegram: Kitchen; empty: this conversation.")
        ] = "",
    ) -> str:
        """Do something at certain times without being asked; your reply is sent to this conversation, or to another
        room of the person."""
        count = len(deps.schedules.all(chat.room))
        if count >= MAX_SCHEDULES:
            raise BadSchedule(f"There are {count} schedules here already.", "Cancel one first.")
        try:
            when = ScheduleTime(cron=cron, every_s=every_minutes and every_minutes * 60, at=at, zone=zone, hours=hours)
        except ValidationError as error:
            raise BadSchedule(f"{error.errors()[0]['msg']}.", "Say when, in one way.") from None
        target = deps.queries.find_delivery_room(chat.person, to) if to else None
        plan = plan_schedule(chat.room, prompt, when, now=now, actor=chat.character, to=target)
        outcome.new_events.append(plan.new_event)
        outcome.jobs.append(plan.job)
        return f"Scheduled as {plan.schedule}: {when.describe()}."

    return make_tool(schedule)


MAX_TURNS = 5
MAX_WAKES = 3
_QUERY_MESSAGES = 2
"""Latest messages that form the question for recall."""
_MEMORIES = 8
_WITHHELD = "I had an answer, but it contained something confidential, so I did not send it."
_UNFINISHED = (
    f"I have no answer: I used all {MAX_TURNS} steps that I have for a message. Ask again, or for less at once."
)


class Channel:
    """Handles messages, results of processes, and due schedules."""

    def __init__(self, deps: AgentDeps, compactor: Compactor, audience: Audience, clock: Clock) -> None:
        self._deps = deps
        self._audience = audience
        self._compactor = compactor
        self._clock = clock
        self.previews = ReplyPreviews(deps.guard)

    async def handle_message(self, job: Job) -> JobResult | None:
        """Answer the latest message; its prompt contains the earlier ones, so these are not answered separately."""
        chat, turn = self._deps.queries.chat(str(job.payload["room"])), str(job.payload["turn"])
        if self._deps.queries.newest_message(chat.room) != turn:
            return None
        return await self._run(chat, ChannelOutcome(chat, turn), woke=False)

    async def handle_wake(self, job: Job) -> JobResult | None:
        """Run the channel for new results of branches and workers."""
        chat = self._deps.queries.chat(str(job.payload["room"]))
        results = self._deps.queries.unread_results(chat.room)
        if not results or chat.wakes >= MAX_WAKES:
            return None  # handled already, or the next message will include them
        if self._clock.now() - max(result.last_activity for result in results) < timedelta(seconds=DEBOUNCE_S):
            return None  # the newest result has a wake job of its own
        newest = self._deps.queries.newest_message(chat.room)
        if newest is not None and self._deps.queries.is_open(message_key(newest)):
            return None  # a message waits for its run, which includes the results
        return await self._run(chat, ChannelOutcome(chat, f"{WAKE_PREFIX}{job.id}"), woke=True)

    async def _run(self, chat: DeskChat, outcome: ChannelOutcome, *, woke: bool) -> JobResult:
        recent = [line.text for line in self._deps.queries.history(chat.room) if line.role == "user"][-_QUERY_MESSAGES:]
        remembered = await self._recall(chat, outcome, " ".join(recent))
        messages = self._deps.prompts.channel(chat, remembered, woke=woke)
        dropped, outcome.jobs = await self._compactor.check_size(chat, messages)
        if dropped:
            messages = self._deps.prompts.channel(chat, remembered, woke=woke)
        if results := self._deps.queries.unread_results(chat.room):
            text = results_text(results)
            outcome.inject(results, text, woke=woke)
            # A message that is being answered stays last.
            messages.insert(len(messages) - (not woke), result_message(text))
        try:
            return outcome.job_result(await self._run_turns(chat, outcome, messages, woke=woke))
        except ModelError as error:
            return outcome.job_result(error=redact(str(error)))

    async def run_schedule(self, chat: DeskChat, outcome: ChannelOutcome, prompt: str) -> str:
        """Run a due schedule with its prompt alone; returns the model that answered."""
        remembered = await self._recall(chat, outcome, prompt)
        messages = self._deps.prompts.scheduled(chat, prompt, remembered)
        return await self._run_turns(chat, outcome, messages, woke=True, scheduled=True)

    async def _recall(self, chat: DeskChat, outcome: ChannelOutcome, question: str) -> list[str]:
        """Memories of all modes about a question that the audience may hear."""
        if not question.strip():
            return []
        memories = await asyncio.to_thread(self._audience.recall, chat, question, _MEMORIES)
        outcome.note_recalled(memories)
        return [memory.text_with_speaker for memory in memories]

    async def _run_turns(
        self,
        chat: DeskChat,
        outcome: ChannelOutcome,
        messages: list[PromptMessage],
        *,
        woke: bool,
        scheduled: bool = False,
    ) -> str:
        """Call the model until it has answered; returns the model."""
        tools = channel_tools(self._deps, chat, outcome, self._clock.now(), scheduled=scheduled)
        box = Toolbox(tools, self._deps.guard)
        model = ""
        for _ in range(MAX_TURNS):
            prompt = Prompt(messages=tuple(messages), tools=box.schemas)
            answer = await self._deps.models.ask(
                Role.CHANNEL,
                prompt,
                caller=Caller(chat.room, chat.character),
                on_text=lambda text: self.previews.show_beginning(
                    outcome.answers, "\n\n".join([*outcome.replies, text])
                ),
            )
            model = answer.model
            messages.append(PromptMessage(role="assistant", text=answer.text, calls=answer.calls))
            if not answer.calls:
                if not answer.redacted and self._add_reply(outcome, answer.text, woke=woke):
                    return model
                outcome.withheld = True
                messages.append(
                    PromptMessage(
                        role="user", text="That contained a secret and was not sent. Write it without the secret."
                    )
                )
                continue
            for call in answer.calls:  # the tools refuse arguments with a secret
                outcome.withheld |= call.name == "reply" and self._deps.guard.has_secret(call.arguments)
            messages += [
                PromptMessage(role="tool", text=redact(await box.use(call)), answers=call) for call in answer.calls
            ]
            if outcome.replies:
                self.previews.show(outcome.answers, "\n\n".join(outcome.replies))
            if outcome.answered:
                return model
        if outcome.withheld:
            outcome.replies.append(_WITHHELD)
        elif not woke and not outcome.files:  # after a wake, a reply is optional
            outcome.replies.append(_UNFINISHED)
        return model

    def _add_reply(self, outcome: ChannelOutcome, text: str, *, woke: bool) -> bool:
        """Take plain text as the reply, which is optional after a wake; False if it contains a secret."""
        if self._deps.guard.has_secret(text):
            return False
        if text.strip():
            outcome.replies.append(text.strip())
        elif not woke:
            outcome.skip("it had nothing to say")
        return True
