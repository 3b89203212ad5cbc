"""The channel: the only one that talks to people, and it never waits for the others. D1, D3

A message, or a result that arrived, makes the character look at the conversation once: at most five turns of its model,
and all that they led to recorded together at the end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from coterie.base.clock import Clock
from coterie.base.masking import mask
from coterie.kernel import Job
from coterie.kernel.worker import Outcome
from coterie.llm.errors import ModelError
from coterie.llm.messages import Message, Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller
from coterie.memory.record import MemoryType
from coterie.memory.writing import NewMemory
from coterie.modes.desk.briefing import result_message, results_text
from coterie.modes.desk.compactor import Compactor
from coterie.modes.desk.errand import DEBOUNCE_S, WOKEN, Errand
from coterie.modes.desk.errors import BadTool, Leak
from coterie.modes.desk.kit import Kit
from coterie.modes.desk.officebook import DeskChat
from coterie.modes.desk.tools import Tool, Toolbox, tool

MOST_TURNS = 5
MOST_WAKES = 3
MOST_BRANCHES = 5
_HELD_BACK = "I had an answer, but it held something confidential, so I kept it to myself."


class Channel:
    def __init__(self, kit: Kit, compactor: Compactor, clock: Clock) -> None:
        self._kit = kit
        self._compactor = compactor
        self._clock = clock

    async def message(self, job: Job) -> Outcome | None:
        """Somebody spoke. Only the newest message is answered, with all before it in view: no queue of old ones."""
        chat, turn = self._kit.book.chat(str(job.payload["room"])), str(job.payload["turn"])
        if self._kit.book.newest_message(chat.room) != turn:
            return None
        return await self._look(chat, Errand(chat, turn), woke=False)

    async def wake(self, job: Job) -> Outcome | None:
        """Something came of thought or work. D3"""
        chat = self._kit.book.chat(str(job.payload["room"]))
        results = self._kit.book.fresh(chat.room)
        if not results or chat.wakes >= MOST_WAKES:
            return None  # known already, or it waits for the next word of a person
        if self._clock.now() - max(result.heard for result in results) < timedelta(seconds=DEBOUNCE_S):
            return None  # the newest of them has a wake of its own
        return await self._look(chat, Errand(chat, f"{WOKEN}{job.id}"), woke=True)

    async def _look(self, chat: DeskChat, errand: Errand, *, woke: bool) -> Outcome:
        messages = self._kit.briefing.channel(chat)
        dropped, errand.jobs = await self._compactor.look(chat, messages)
        if dropped:
            messages = self._kit.briefing.channel(chat)
        if results := self._kit.book.fresh(chat.room):
            text = results_text(results)
            errand.inject(results, text, woke=woke)
            messages.append(result_message(text))
        box = Toolbox(self._tools(chat, errand), self._kit.guard)
        model = ""
        try:
            for _ in range(MOST_TURNS):
                prompt = Prompt(messages=tuple(messages), tools=box.schemas)
                answer = await self._kit.models.ask(Role.CHANNEL, prompt, caller=Caller(chat.room, chat.character))
                model = answer.model
                messages.append(Message(role="assistant", text=answer.text, calls=answer.calls))
                if not answer.calls:
                    if self._say(errand, answer.text, woke=woke):
                        break
                    messages.append(Message(role="user", text="That held a secret and was not sent. Say it without."))
                    continue
                messages += [Message(role="tool", text=mask(await box.use(c)), answers=c) for c in answer.calls]
                if errand.answered:
                    break
            else:
                if not errand.answered:
                    errand.said.append(_HELD_BACK)
        except ModelError as error:
            return errand.outcome(trouble=mask(str(error)))
        return errand.outcome(model)

    def _say(self, errand: Errand, text: str, *, woke: bool) -> bool:
        """Plain words are an answer too; after a wake there need not be any."""
        if self._kit.guard.found_in(text):
            return False
        if text.strip():
            errand.said.append(text.strip())
        elif not woke:
            errand.skip("it had nothing to say")
        return True

    def _tools(self, chat: DeskChat, errand: Errand) -> list[Tool]:
        async def reply(text: Annotated[str, Field(min_length=1)]) -> str:
            """Say something to the person, now."""
            try:
                self._kit.guard.check(text, "the reply")
            except Leak as leak:
                return f"Error: {leak}"
            errand.said.append(text)
            return "Said."

        async def branch(thought: Annotated[str, Field(min_length=1, description="What to think about.")]) -> str:
            """Think about something longer, while the conversation goes on. The conclusion is brought to you."""
            busy = sum(p.kind == "branch" and p.busy for p in self._kit.book.processes(chat.room)) + errand.branches
            if busy >= MOST_BRANCHES:
                raise BadTool(f"You are thinking about {busy} things already.", "Wait for one, or cancel one.")
            lines = self._kit.book.history(chat.room)
            return f"Thinking, as {errand.branch(thought, lines[-1].seq if lines else 0)}."

        async def spawn_worker(
            task: Annotated[str, Field(min_length=1, description="Everything needed to do it: it knows nothing else.")],
            interactive: Annotated[bool, Field(description="Keep it, to give it follow-ups.")] = False,
        ) -> str:
            """Have work done with files and commands, while the conversation goes on. The result is brought to you."""
            return f"At work, as {errand.hire(task, interactive)}."

        async def route(worker: str, text: Annotated[str, Field(min_length=1)]) -> str:
            """Give a waiting worker its follow-up."""
            draft, job = self._kit.processes.follow_up(
                chat.room, worker, text, mark=errand.answers, actor=chat.character
            )
            errand.drafts.append(draft)
            errand.jobs.append(job)
            return "Passed on."

        async def cancel(process: Annotated[str, Field(description="The id of a worker or a branch.")]) -> str:
            """End a worker or a branch, whatever it is doing."""
            await self._kit.processes.cancel(chat.room, process)
            return "Ended."

        async def memory_save(text: Annotated[str, Field(min_length=1)], type: MemoryType = "fact") -> str:  # noqa: A002
            """Remember something, from your point of view."""
            errand.drafts += self._kit.processes.memory_drafts(
                NewMemory(text, chat.character, chat.room, type=type, sources=(errand.answers,))
            )
            return "Remembered."

        async def skip(why: str = "") -> str:
            """Say nothing this time."""
            errand.skip(why)
            return "Nothing is said."

        async def react(emoji: Annotated[str, Field(min_length=1, max_length=16)]) -> str:
            """React to the message with an emoji."""
            errand.react(emoji)
            return "Reacted."

        return [tool(each) for each in (reply, branch, spawn_worker, route, cancel, memory_save, skip, react)]
