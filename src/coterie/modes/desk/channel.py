"""The channel: the only one that talks to people, and it never waits for the others. D1, D3

A message, or a result that arrived, makes the character look at the conversation once: at most five turns of its model,
and all that they led to recorded together at the end.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from coterie.base.clock import Clock
from coterie.base.masking import redact
from coterie.kernel import Job
from coterie.kernel.worker import JobResult
from coterie.llm.errors import ModelError
from coterie.llm.messages import Prompt, PromptMessage
from coterie.llm.roles import Role
from coterie.llm.router import Caller
from coterie.modes.desk.briefing import result_message, results_text
from coterie.modes.desk.channel_tools import channel_tools
from coterie.modes.desk.compactor import Compactor
from coterie.modes.desk.company import Audience
from coterie.modes.desk.errand import DEBOUNCE_S, WAKE_PREFIX, ChannelOutcome
from coterie.modes.desk.kit import AgentDeps
from coterie.modes.desk.officebook import DeskChat
from coterie.modes.desk.tools import Toolbox

MOST_TURNS = 5
MOST_WAKES = 3
_ASKED_WITH = 2
"""So many of the last messages say what it is about."""
_MEMORIES = 8
_HELD_BACK = "I had an answer, but it held something confidential, so I kept it to myself."


class Channel:
    def __init__(self, kit: AgentDeps, compactor: Compactor, company: Audience, clock: Clock) -> None:
        self._kit = kit
        self._company = company
        self._compactor = compactor
        self._clock = clock

    async def handle_message(self, job: Job) -> JobResult | None:
        """Somebody spoke. Only the newest message is answered, with all before it in view: no queue of old ones."""
        chat, turn = self._kit.queries.chat(str(job.payload["room"])), str(job.payload["turn"])
        if self._kit.queries.newest_message(chat.room) != turn:
            return None
        return await self._look(chat, ChannelOutcome(chat, turn), woke=False)

    async def handle_wake(self, job: Job) -> JobResult | None:
        """Something came of thought or work. D3"""
        chat = self._kit.queries.chat(str(job.payload["room"]))
        results = self._kit.queries.unread_results(chat.room)
        if not results or chat.wakes >= MOST_WAKES:
            return None  # known already, or it waits for the next word of a person
        if self._clock.now() - max(result.last_activity for result in results) < timedelta(seconds=DEBOUNCE_S):
            return None  # the newest of them has a wake of its own
        return await self._look(chat, ChannelOutcome(chat, f"{WAKE_PREFIX}{job.id}"), woke=True)

    async def _look(self, chat: DeskChat, errand: ChannelOutcome, *, woke: bool) -> JobResult:
        lately = [line.text for line in self._kit.queries.history(chat.room) if line.role == "user"][-_ASKED_WITH:]
        remembered = await self._remember(chat, errand, " ".join(lately))
        messages = self._kit.prompts.channel(chat, remembered)
        dropped, errand.jobs = await self._compactor.check_size(chat, messages)
        if dropped:
            messages = self._kit.prompts.channel(chat, remembered)
        if results := self._kit.queries.unread_results(chat.room):
            text = results_text(results)
            errand.inject(results, text, woke=woke)
            messages.append(result_message(text))
        try:
            return errand.outcome(await self._turns(chat, errand, messages, woke=woke))
        except ModelError as error:
            return errand.outcome(trouble=redact(str(error)))

    async def run_schedule(self, chat: DeskChat, errand: ChannelOutcome, prompt: str) -> str:
        """Nobody spoke: a schedule is due, with nothing in view but what it says. Which model it was. D15"""
        remembered = await self._remember(chat, errand, prompt)
        messages = self._kit.prompts.scheduled(chat, prompt, remembered)
        return await self._turns(chat, errand, messages, woke=True, by_itself=True)

    async def _remember(self, chat: DeskChat, errand: ChannelOutcome, question: str) -> list[str]:
        """What it knows about this from stories, crowds and other conversations, as far as those here may hear it."""
        if not question.strip():
            return []
        found = await asyncio.to_thread(self._company.recall, chat, question, _MEMORIES)
        errand.note_recalled(found)
        return [one.text_with_speaker for one in found]

    async def _turns(
        self,
        chat: DeskChat,
        errand: ChannelOutcome,
        messages: list[PromptMessage],
        *,
        woke: bool,
        by_itself: bool = False,
    ) -> str:
        """Let it say and do things until it is done; which model it was."""
        tools = channel_tools(self._kit, chat, errand, self._clock.now(), by_itself=by_itself)
        box = Toolbox(tools, self._kit.guard)
        model = ""
        for _ in range(MOST_TURNS):
            prompt = Prompt(messages=tuple(messages), tools=box.schemas)
            answer = await self._kit.models.ask(Role.CHANNEL, prompt, caller=Caller(chat.room, chat.character))
            model = answer.model
            messages.append(PromptMessage(role="assistant", text=answer.text, calls=answer.calls))
            if not answer.calls:
                if self._say(errand, answer.text, woke=woke):
                    return model
                messages.append(PromptMessage(role="user", text="That held a secret and was not sent. Say it without."))
                continue
            messages += [PromptMessage(role="tool", text=redact(await box.use(c)), answers=c) for c in answer.calls]
            if errand.answered:
                return model
        errand.replies.append(_HELD_BACK)
        return model

    def _say(self, errand: ChannelOutcome, text: str, *, woke: bool) -> bool:
        """Plain words are an answer too; after a wake there need not be any."""
        if self._kit.guard.has_secret(text):
            return False
        if text.strip():
            errand.replies.append(text.strip())
        elif not woke:
            errand.skip("it had nothing to say")
        return True
