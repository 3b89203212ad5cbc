"""The channel: the only one that talks to people, and it never waits for the others. D1, D3

A message, or a result that arrived, makes the character look at the conversation once: at most five turns of its model,
and all that they led to recorded together at the end.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from coterie.base.clock import Clock
from coterie.base.masking import mask
from coterie.kernel import Job
from coterie.kernel.worker import Outcome
from coterie.llm.errors import ModelError
from coterie.llm.messages import Message, Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller
from coterie.modes.desk.briefing import result_message, results_text
from coterie.modes.desk.channel_tools import channel_tools
from coterie.modes.desk.compactor import Compactor
from coterie.modes.desk.company import Company
from coterie.modes.desk.errand import DEBOUNCE_S, WOKEN, Errand
from coterie.modes.desk.kit import Kit
from coterie.modes.desk.officebook import DeskChat
from coterie.modes.desk.tools import Toolbox

MOST_TURNS = 5
MOST_WAKES = 3
_ASKED_WITH = 2
"""So many of the last messages say what it is about."""
_MEMORIES = 8
_HELD_BACK = "I had an answer, but it held something confidential, so I kept it to myself."


class Channel:
    def __init__(self, kit: Kit, compactor: Compactor, company: Company, clock: Clock) -> None:
        self._kit = kit
        self._company = company
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
        lately = [line.text for line in self._kit.book.history(chat.room) if line.role == "user"][-_ASKED_WITH:]
        remembered = await self._remember(chat, errand, " ".join(lately))
        messages = self._kit.briefing.channel(chat, remembered)
        dropped, errand.jobs = await self._compactor.look(chat, messages)
        if dropped:
            messages = self._kit.briefing.channel(chat, remembered)
        if results := self._kit.book.fresh(chat.room):
            text = results_text(results)
            errand.inject(results, text, woke=woke)
            messages.append(result_message(text))
        try:
            return errand.outcome(await self._turns(chat, errand, messages, woke=woke))
        except ModelError as error:
            return errand.outcome(trouble=mask(str(error)))

    async def alone(self, chat: DeskChat, errand: Errand, prompt: str) -> str:
        """Nobody spoke: a schedule is due, with nothing in view but what it says. Which model it was. D15"""
        remembered = await self._remember(chat, errand, prompt)
        messages = self._kit.briefing.scheduled(chat, prompt, remembered)
        return await self._turns(chat, errand, messages, woke=True, by_itself=True)

    async def _remember(self, chat: DeskChat, errand: Errand, question: str) -> list[str]:
        """What it knows about this from stories, crowds and other conversations, as far as those here may hear it."""
        if not question.strip():
            return []
        found = await asyncio.to_thread(self._company.recall, chat, question, _MEMORIES)
        errand.bring_to_mind(found)
        return [one.told for one in found]

    async def _turns(
        self, chat: DeskChat, errand: Errand, messages: list[Message], *, woke: bool, by_itself: bool = False
    ) -> str:
        """Let it say and do things until it is done; which model it was."""
        tools = channel_tools(self._kit, chat, errand, self._clock.now(), by_itself=by_itself)
        box = Toolbox(tools, self._kit.guard)
        model = ""
        for _ in range(MOST_TURNS):
            prompt = Prompt(messages=tuple(messages), tools=box.schemas)
            answer = await self._kit.models.ask(Role.CHANNEL, prompt, caller=Caller(chat.room, chat.character))
            model = answer.model
            messages.append(Message(role="assistant", text=answer.text, calls=answer.calls))
            if not answer.calls:
                if self._say(errand, answer.text, woke=woke):
                    return model
                messages.append(Message(role="user", text="That held a secret and was not sent. Say it without."))
                continue
            messages += [Message(role="tool", text=mask(await box.use(c)), answers=c) for c in answer.calls]
            if errand.answered:
                return model
        errand.said.append(_HELD_BACK)
        return model

    def _say(self, errand: Errand, text: str, *, woke: bool) -> bool:
        """Plain words are an answer too; after a wake there need not be any."""
        if self._kit.guard.found_in(text):
            return False
        if text.strip():
            errand.said.append(text.strip())
        elif not woke:
            errand.skip("it had nothing to say")
        return True
