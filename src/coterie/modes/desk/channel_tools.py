"""What the channel can do beside talking. Nothing of it waits: it is gathered, and recorded when the look ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import Field, ValidationError

from coterie.memory.record import MemoryType
from coterie.modes.desk.errand import ChannelOutcome
from coterie.modes.desk.errors import BadSchedule, BadTool, Leak
from coterie.modes.desk.events import ScheduleRemoved
from coterie.modes.desk.kit import AgentDeps
from coterie.modes.desk.officebook import DeskChat
from coterie.modes.desk.planning import plan_schedule
from coterie.modes.desk.tools import AgentTool, make_tool
from coterie.modes.desk.when import ScheduleTime

MOST_BRANCHES = 5
MOST_SCHEDULES = 20


def channel_tools(
    kit: AgentDeps, chat: DeskChat, errand: ChannelOutcome, now: datetime, *, by_itself: bool = False
) -> list[AgentTool]:
    """`by_itself`: nobody spoke, a schedule is due. Then it must not make more of them."""
    made = [*_talking(kit, chat, errand), *_handing_on(kit, chat, errand), *_keeping(kit, chat, errand)]
    return made if by_itself else [*made, _scheduling(kit, chat, errand, now)]


def _talking(kit: AgentDeps, chat: DeskChat, errand: ChannelOutcome) -> Sequence[AgentTool]:
    async def reply(text: Annotated[str, Field(min_length=1)]) -> str:
        """Say something to the person, now."""
        try:
            kit.guard.check(text, "the reply")
        except Leak as leak:
            return f"Error: {leak}"
        errand.replies.append(text)
        return "Said."

    async def skip(why: str = "") -> str:
        """Say nothing this time."""
        errand.skip(why)
        return "Nothing is said."

    async def react(emoji: Annotated[str, Field(min_length=1, max_length=16)]) -> str:
        """React to the message with an emoji."""
        errand.react(emoji)
        return "Reacted."

    return [make_tool(reply), make_tool(skip), make_tool(react)]


def _handing_on(kit: AgentDeps, chat: DeskChat, errand: ChannelOutcome) -> Sequence[AgentTool]:
    async def branch(thought: Annotated[str, Field(min_length=1, description="What to think about.")]) -> str:
        """Think about something longer, while the conversation goes on. The conclusion is brought to you."""
        busy = kit.queries.running_branches(chat.room) + errand.branches
        if busy >= MOST_BRANCHES:
            raise BadTool(f"You are thinking about {busy} things already.", "Wait for one, or cancel one.")
        return f"Thinking, as {errand.start_branch(thought, kit.queries.last_history_seq(chat.room))}."

    async def spawn_worker(
        task: Annotated[str, Field(min_length=1, description="Everything needed to do it: it knows nothing else.")],
        interactive: Annotated[bool, Field(description="Keep it, to give it follow-ups.")] = False,
    ) -> str:
        """Have work done with files and commands, while the conversation goes on. The result is brought to you."""
        return f"At work, as {errand.start_worker(task, interactive)}."

    async def route(worker: str, text: Annotated[str, Field(min_length=1)]) -> str:
        """Give a waiting worker its follow-up."""
        draft, job = kit.processes.plan_follow_up(chat.room, worker, text, mark=errand.answers, actor=chat.character)
        errand.new_events.append(draft)
        errand.jobs.append(job)
        return "Passed on."

    async def cancel(process: Annotated[str, Field(description="The id of a worker, a branch or a schedule.")]) -> str:
        """End a worker or a branch, whatever it is doing, or take a schedule off the timetable."""
        if kit.schedules.find(chat.room, process) is not None:
            errand.add_event(ScheduleRemoved(schedule=process))
        else:
            await kit.processes.cancel(chat.room, process)
        return "Ended."

    return [make_tool(branch), make_tool(spawn_worker), make_tool(route), make_tool(cancel)]


def _keeping(kit: AgentDeps, chat: DeskChat, errand: ChannelOutcome) -> Sequence[AgentTool]:
    async def memory_save(text: Annotated[str, Field(min_length=1)], type: MemoryType = "fact") -> str:  # noqa: A002
        """Remember something, from your point of view."""
        wanted = errand.new_memory(text, type)
        errand.new_events += kit.processes.memory_events(chat, wanted)
        return "Remembered."

    async def read_skill(name: str, file: str = "SKILL.md") -> str:
        """The instructions of one of your skills, or another of its files."""
        return kit.skills.read(chat.character, name, file)

    kept = [make_tool(memory_save)]
    return [*kept, make_tool(read_skill)] if kit.skills.prompt_text(chat.character) else kept


def _scheduling(kit: AgentDeps, chat: DeskChat, errand: ChannelOutcome, now: datetime) -> AgentTool:
    async def schedule(
        prompt: Annotated[
            str, Field(min_length=1, description="What you are told when it is due; you know nothing else.")
        ],
        cron: Annotated[str, Field(description="Five fields, such as 0 8 * * 1-5; for what comes again.")] = "",
        every_minutes: Annotated[float | None, Field(description="Instead of cron.", ge=1)] = None,
        at: Annotated[datetime | None, Field(description="Instead of cron: once, then.")] = None,
        zone: Annotated[str, Field(description="A time zone such as Europe/Berlin.")] = "UTC",
        hours: Annotated[str, Field(description="When it may run, such as 08:00-22:00.")] = "",
    ) -> str:
        """Do something by yourself at certain times; what you say then is told here."""
        mine = len(kit.schedules.all(chat.room))
        if mine >= MOST_SCHEDULES:
            raise BadSchedule(f"There are {mine} schedules here already.", "Cancel one first.")
        try:
            when = ScheduleTime(cron=cron, every_s=every_minutes and every_minutes * 60, at=at, zone=zone, hours=hours)
        except ValidationError as error:
            raise BadSchedule(f"{error.errors()[0]['msg']}.", "Say when, in one way.") from None
        plan = plan_schedule(chat.room, prompt, when, now=now, actor=chat.character)
        errand.new_events.append(plan.new_event)
        errand.jobs.append(plan.job)
        return f"On the timetable, as {plan.schedule}: {when.describe()}."

    return make_tool(schedule)
