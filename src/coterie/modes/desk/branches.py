"""A branch: a quiet thought on a clone of the conversation, of which only the conclusion stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from coterie.base.masking import mask
from coterie.kernel import Draft, Job
from coterie.kernel.worker import Outcome
from coterie.llm.errors import ModelError
from coterie.llm.messages import Message, Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller
from coterie.memory.record import MemoryType
from coterie.modes.desk.asking import Asking
from coterie.modes.desk.company import Company
from coterie.modes.desk.errand import Errand, wake_job
from coterie.modes.desk.events import BranchEnd, BranchEnded
from coterie.modes.desk.kit import Kit
from coterie.modes.desk.officebook import DeskChat
from coterie.modes.desk.processes import end_key
from coterie.modes.desk.tools import Tool, Toolbox, tool

MOST_TURNS = 10
STALE_AFTER_S = 60.0


class Branches:
    def __init__(self, kit: Kit, company: Company, asking: Asking, *, stale_after_s: float = STALE_AFTER_S) -> None:
        self._kit = kit
        self._company = company
        self._asking = asking
        self._stale_after_s = stale_after_s

    async def think(self, job: Job) -> Outcome | None:
        branch = self._kit.book.process(str(job.payload["room"]), str(job.payload["branch"]))
        if not branch.busy:
            return None
        chat = self._kit.book.chat(branch.room)
        errand = Errand(chat, branch.id)
        thinking = self._conclude(chat, errand, self._kit.briefing.branch(chat, branch))
        ended = await self._kit.processes.interruptible(branch, thinking)
        if ended is None or not self._kit.book.process(branch.room, branch.id).busy:
            return None
        state, conclusion = ended
        payload = BranchEnded(branch=branch.id, state=state, conclusion=self._kit.guard.cover(conclusion))
        drafts = [*errand.drafts, Draft(branch.room, payload, chat.character, key=end_key(branch))]
        return Outcome(drafts, [*errand.jobs, wake_job(branch.room, branch.id, "end")])

    async def _conclude(self, chat: DeskChat, errand: Errand, messages: list[Message]) -> tuple[BranchEnd, str]:
        box = Toolbox(self._tools(chat, errand), self._kit.guard)
        try:
            async with asyncio.timeout(self._stale_after_s):
                for _ in range(MOST_TURNS):
                    prompt = Prompt(messages=tuple(messages), tools=box.schemas)
                    answer = await self._kit.models.ask(Role.BRANCH, prompt, caller=Caller(chat.room, chat.character))
                    if not answer.calls:
                        return "done", answer.text.strip() or "No conclusion."
                    messages.append(Message(role="assistant", text=answer.text, calls=answer.calls))
                    messages += [Message(role="tool", text=mask(await box.use(c)), answers=c) for c in answer.calls]
        except TimeoutError:
            return "stale", f"No conclusion within {self._stale_after_s:.0f} s."
        except ModelError as error:
            return "failed", str(error)
        return "failed", f"No conclusion after {MOST_TURNS} turns."

    def _tools(self, chat: DeskChat, errand: Errand) -> list[Tool]:
        async def memory_recall(question: Annotated[str, Field(min_length=1)], most: int = 8) -> str:
            """What you remember about something."""
            found = await asyncio.to_thread(self._company.recall, chat, question, min(max(most, 1), 20))
            errand.bring_to_mind(found)
            return "\n".join(f"- {memory.told}" for memory in found) or "Nothing comes to mind."

        async def channel_recall(text: Annotated[str, Field(min_length=1)]) -> str:
            """Lines of this conversation, however old, that contain a text."""
            wanted = text.casefold()
            lines = [line for line in self._kit.book.archive(chat.room) if wanted in line.text.casefold()]
            return "\n".join(f"{line.role}: {line.text[:500]}" for line in lines[-20:]) or "There is none."

        async def memory_save(text: Annotated[str, Field(min_length=1)], type: MemoryType = "fact") -> str:  # noqa: A002
            """Remember something, from your point of view."""
            wanted = errand.memory(text, type)
            errand.drafts += self._kit.processes.memory_drafts(chat, wanted)
            return "Remembered."

        async def spawn_worker(task: Annotated[str, Field(min_length=1)]) -> str:
            """Have work done with files and commands. The result is brought to you in the conversation."""
            return f"At work, as {errand.hire(task, interactive=False, by=errand.answers)}."

        made = [
            tool(memory_recall, outside=True),
            tool(channel_recall, outside=True),
            tool(memory_save),
            tool(spawn_worker),
        ]
        return [*made, *self._ask_tool(chat, errand)]

    def _ask_tool(self, chat: DeskChat, errand: Errand) -> list[Tool]:
        """Only where there is somebody to ask."""
        others = self._asking.others(chat.character, chat.person)
        if not others:
            return []

        async def ask(
            character: Annotated[str, Field(min_length=1)], question: Annotated[str, Field(min_length=1)]
        ) -> str:
            """Ask another character something; it answers from its own memory."""
            return await self._asking.ask(errand, character, question)

        made = tool(ask, outside=True)
        return [replace(made, description=f"{made.description} There are: {', '.join(bot.name for bot in others)}.")]
