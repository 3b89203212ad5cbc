"""A branch: a quiet thought on a clone of the conversation, of which only the conclusion stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from coterie.base.masking import redact
from coterie.kernel import Job, NewEvent
from coterie.kernel.worker import JobResult
from coterie.llm.errors import ModelError
from coterie.llm.messages import Prompt, PromptMessage
from coterie.llm.roles import Role
from coterie.llm.router import Caller
from coterie.memory.record import MemoryType
from coterie.modes.desk.asking import CharacterQuestions
from coterie.modes.desk.company import Audience
from coterie.modes.desk.errand import ChannelOutcome, wake_job
from coterie.modes.desk.events import BranchEnd, BranchEnded
from coterie.modes.desk.kit import AgentDeps
from coterie.modes.desk.officebook import DeskChat
from coterie.modes.desk.processes import end_key
from coterie.modes.desk.tools import AgentTool, Toolbox, make_tool

MOST_TURNS = 10
STALE_AFTER_S = 60.0


class Branches:
    def __init__(
        self, kit: AgentDeps, company: Audience, asking: CharacterQuestions, *, stale_after_s: float = STALE_AFTER_S
    ) -> None:
        self._kit = kit
        self._company = company
        self._asking = asking
        self._stale_after_s = stale_after_s

    async def run_branch(self, job: Job) -> JobResult | None:
        branch = self._kit.queries.process(str(job.payload["room"]), str(job.payload["branch"]))
        if not branch.active:
            return None
        chat = self._kit.queries.chat(branch.room)
        errand = ChannelOutcome(chat, branch.id)
        thinking = self._conclude(chat, errand, self._kit.prompts.branch(chat, branch))
        ended = await self._kit.processes.run_cancellable(branch, thinking)
        if ended is None or not self._kit.queries.process(branch.room, branch.id).active:
            return None
        state, conclusion = ended
        payload = BranchEnded(branch=branch.id, state=state, conclusion=self._kit.guard.redact(conclusion))
        drafts = [*errand.new_events, NewEvent(branch.room, payload, chat.character, key=end_key(branch))]
        return JobResult(drafts, [*errand.jobs, wake_job(branch.room, branch.id, "end")])

    async def _conclude(
        self, chat: DeskChat, errand: ChannelOutcome, messages: list[PromptMessage]
    ) -> tuple[BranchEnd, str]:
        box = Toolbox(self._tools(chat, errand), self._kit.guard)
        try:
            async with asyncio.timeout(self._stale_after_s):
                for _ in range(MOST_TURNS):
                    prompt = Prompt(messages=tuple(messages), tools=box.schemas)
                    answer = await self._kit.models.ask(Role.BRANCH, prompt, caller=Caller(chat.room, chat.character))
                    if not answer.calls:
                        return "done", answer.text.strip() or "No conclusion."
                    messages.append(PromptMessage(role="assistant", text=answer.text, calls=answer.calls))
                    messages += [
                        PromptMessage(role="tool", text=redact(await box.use(c)), answers=c) for c in answer.calls
                    ]
        except TimeoutError:
            return "stale", f"No conclusion within {self._stale_after_s:.0f} s."
        except ModelError as error:
            return "failed", str(error)
        return "failed", f"No conclusion after {MOST_TURNS} turns."

    def _tools(self, chat: DeskChat, errand: ChannelOutcome) -> list[AgentTool]:
        async def memory_recall(question: Annotated[str, Field(min_length=1)], most: int = 8) -> str:
            """What you remember about something."""
            found = await asyncio.to_thread(self._company.recall, chat, question, min(max(most, 1), 20))
            errand.note_recalled(found)
            return "\n".join(f"- {memory.text_with_speaker}" for memory in found) or "Nothing comes to mind."

        async def channel_recall(text: Annotated[str, Field(min_length=1)]) -> str:
            """Lines of this conversation, however old, that contain a text."""
            wanted = text.casefold()
            lines = [line for line in self._kit.queries.archive(chat.room) if wanted in line.text.casefold()]
            return "\n".join(f"{line.role}: {line.text[:500]}" for line in lines[-20:]) or "There is none."

        async def memory_save(text: Annotated[str, Field(min_length=1)], type: MemoryType = "fact") -> str:  # noqa: A002
            """Remember something, from your point of view."""
            wanted = errand.new_memory(text, type)
            errand.new_events += self._kit.processes.memory_events(chat, wanted)
            return "Remembered."

        async def spawn_worker(task: Annotated[str, Field(min_length=1)]) -> str:
            """Have work done with files and commands. The result is brought to you in the conversation."""
            return f"At work, as {errand.start_worker(task, interactive=False, by=errand.answers)}."

        made = [
            make_tool(memory_recall, untrusted_result=True),
            make_tool(channel_recall, untrusted_result=True),
            make_tool(memory_save),
            make_tool(spawn_worker),
        ]
        return [*made, *self._ask_tool(chat, errand)]

    def _ask_tool(self, chat: DeskChat, errand: ChannelOutcome) -> list[AgentTool]:
        """Only where there is somebody to ask."""
        others = self._asking.allowed_characters(chat.character, chat.person)
        if not others:
            return []

        async def ask(
            character: Annotated[str, Field(min_length=1)], question: Annotated[str, Field(min_length=1)]
        ) -> str:
            """Ask another character something; it answers from its own memory."""
            return await self._asking.ask(errand, character, question)

        made = make_tool(ask, untrusted_result=True)
        return [replace(made, description=f"{made.description} There are: {', '.join(bot.name for bot in others)}.")]
