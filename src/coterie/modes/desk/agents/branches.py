"""A branch: a quiet thought on a clone of the conversation, of which only the conclusion stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from coterie.base.clock import Clock, to_micros
from coterie.base.redaction import redact
from coterie.characters.service import Character, Characters
from coterie.characters.workspace import Workspaces
from coterie.eventstore import Job, NewEvent, Store
from coterie.eventstore.worker import JobResult
from coterie.llm.errors import ModelError
from coterie.llm.messages import Prompt, PromptMessage
from coterie.llm.router import Caller, Models
from coterie.llm.settings import Role
from coterie.memory import Memory
from coterie.memory.records import MemoryType
from coterie.memory.writer import NewMemory
from coterie.modes.desk.agents.processes import AgentDeps, end_key
from coterie.modes.desk.agents.tools import AgentTool, Toolbox, make_tool
from coterie.modes.desk.errors import NotAsked
from coterie.modes.desk.events import BranchEnd, BranchEnded, CharacterAsked
from coterie.modes.desk.jobs import ChannelOutcome, wake_job
from coterie.modes.desk.queries import Audience, DeskChat
from coterie.modes.desk.text_safety import UNTRUSTED_TEXT_RULE, LeakGuard, mark_untrusted

# Asking another character, who answers from its own memory and knows who asks. D23
#
# It needs permission (the person must be allowed to talk with that character too) and has a budget for each day. The
# other is asked once, without tools; what it says is noted as its words, and both remember that they spoke.


MayTalk = Callable[[str, str], bool]
"""Whether a person may talk with a character."""
_MEMORIES = 12
_ANSWER = (
    "Another character, {asker}, asks you something on behalf of {person}. Answer in a few sentences, from what you "
    "remember. Say so if you do not know; tell nothing that {person} should not hear."
)


class CharacterQuestions:
    def __init__(
        self,
        store: Store,
        characters: Characters,
        workspaces: Workspaces,
        memory: Memory,
        audience: Audience,
        models: Models,
        clock: Clock,
        may_talk: MayTalk,
        most_a_day: int,
    ) -> None:
        self._store = store
        self._characters = characters
        self._workspaces = workspaces
        self._memory = memory
        self._audience = audience
        self._models = models
        self._clock = clock
        self._may_talk = may_talk
        self._most_a_day = most_a_day
        self._guard = LeakGuard()

    def allowed_characters(self, character: str, person: str) -> list[Character]:
        """Whom it may ask."""
        return [bot for bot in self._characters.all() if bot.id != character and self._may_talk(person, bot.id)]

    async def ask(self, outcome: ChannelOutcome, name: str, question: str) -> str:
        chat = outcome.chat
        asker, asked = self._characters.get(chat.character), self._allowed(outcome, name)
        if self._today(chat.character) >= self._most_a_day:
            raise NotAsked(f"You have asked others {self._most_a_day} times today.", "Ask again tomorrow.")
        recalled = await asyncio.to_thread(self._audience.recall_for_other, asked.id, chat, question, _MEMORIES)
        outcome.note_recalled(recalled)
        told = [
            f"You are {asked.name}.",
            self._persona(asked),
            _ANSWER.format(asker=asker.name, person=chat.person),
            UNTRUSTED_TEXT_RULE,
        ]
        known = mark_untrusted(
            "\n".join(f"- {one.text_with_speaker}" for one in recalled) or "(nothing)", "your memory"
        )
        prompt = Prompt.of(f"{known}\n\n{asker.name} asks: {question}", system="\n\n".join(filter(None, told)))
        answer = await self._models.ask(Role.BRANCH, prompt, caller=Caller(chat.room, asked.id))
        said = self._guard.redact(answer.text.strip()) or "(no answer)"
        payload = CharacterAsked(branch=outcome.answers, asker=asker.id, asked=asked.id, question=question, answer=said)
        # At once, not with the rest of the thought: it was said, and it counts against the budget.
        await self._store.append([NewEvent(chat.room, payload, asker.id)])
        outcome.new_events += self._remembered(outcome, asker, asked, question, said)
        return f"{asked.name} says: {said}"

    def _allowed(self, outcome: ChannelOutcome, name: str) -> Character:
        asked = self._characters.find(name)
        if asked.id not in {bot.id for bot in self.allowed_characters(outcome.chat.character, outcome.chat.person)}:
            raise NotAsked(f"{asked.name} may not be asked here.", "Ask somebody the person may talk with.")
        return asked

    def _remembered(
        self, outcome: ChannelOutcome, asker: Character, asked: Character, question: str, said: str
    ) -> list[NewEvent]:
        """Marked with who said it; each from its own point of view."""
        room = outcome.chat.room
        there = tuple(sorted({asked.id, *self._audience.witnesses(outcome.chat)}))
        heard = NewMemory(
            f"{asked.name} told me: {said}",
            asker.id,
            room,
            speaker=asked.name,
            told_by=asked.id,
            witnesses=there,
            sources=(outcome.answers,),
            reliability=0.8,
            private=outcome.private,
        )
        asked_me = NewMemory(
            f"{asker.name} asked me: {question}",
            asked.id,
            room,
            speaker=asker.name,
            told_by=asker.id,
            witnesses=there,
            private=outcome.private,
        )
        planned = self._memory.writer.plan([heard, asked_me], by_meaning=True)
        return [event for plan in planned for event in plan.new_events]

    def _persona(self, bot: Character) -> str:
        own = self._workspaces.texts(bot.id)
        return "\n\n".join(part for part in (own.identity or bot.identity.persona, own.soul) if part)

    def _today(self, character: str) -> int:
        since = to_micros(self._clock.now() - timedelta(days=1))
        sql = "SELECT count(*) FROM desk_asked WHERE asker = ? AND at >= ?"
        return int(self._store.query(sql, (character, since))[0][0])


MOST_TURNS = 10
STALE_AFTER_S = 60.0


class Branches:
    def __init__(
        self, deps: AgentDeps, audience: Audience, asking: CharacterQuestions, *, stale_after_s: float = STALE_AFTER_S
    ) -> None:
        self._deps = deps
        self._audience = audience
        self._asking = asking
        self._stale_after_s = stale_after_s

    async def run_branch(self, job: Job) -> JobResult | None:
        branch = self._deps.queries.process(str(job.payload["room"]), str(job.payload["branch"]))
        if not branch.active:
            return None
        chat = self._deps.queries.chat(branch.room)
        outcome = ChannelOutcome(chat, branch.id)
        thinking = self._conclude(chat, outcome, self._deps.prompts.branch(chat, branch))
        ended = await self._deps.processes.run_cancellable(branch, thinking)
        if ended is None or not self._deps.queries.process(branch.room, branch.id).active:
            return None
        state, conclusion = ended
        payload = BranchEnded(branch=branch.id, state=state, conclusion=self._deps.guard.redact(conclusion))
        events = [*outcome.new_events, NewEvent(branch.room, payload, chat.character, key=end_key(branch))]
        return JobResult(events, [*outcome.jobs, wake_job(branch.room, branch.id, "end")])

    async def _conclude(
        self, chat: DeskChat, outcome: ChannelOutcome, messages: list[PromptMessage]
    ) -> tuple[BranchEnd, str]:
        box = Toolbox(self._tools(chat, outcome), self._deps.guard)
        try:
            async with asyncio.timeout(self._stale_after_s):
                for _ in range(MOST_TURNS):
                    prompt = Prompt(messages=tuple(messages), tools=box.schemas)
                    answer = await self._deps.models.ask(Role.BRANCH, prompt, caller=Caller(chat.room, chat.character))
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

    def _tools(self, chat: DeskChat, outcome: ChannelOutcome) -> list[AgentTool]:
        async def memory_recall(question: Annotated[str, Field(min_length=1)], most: int = 8) -> str:
            """What you remember about something."""
            found = await asyncio.to_thread(self._audience.recall, chat, question, min(max(most, 1), 20))
            outcome.note_recalled(found)
            return "\n".join(f"- {memory.text_with_speaker}" for memory in found) or "Nothing comes to mind."

        async def channel_recall(text: Annotated[str, Field(min_length=1)]) -> str:
            """Lines of this conversation, however old, that contain a text."""
            wanted = text.casefold()
            lines = [line for line in self._deps.queries.archive(chat.room) if wanted in line.text.casefold()]
            return "\n".join(f"{line.role}: {line.text[:500]}" for line in lines[-20:]) or "There is none."

        async def memory_save(text: Annotated[str, Field(min_length=1)], type: MemoryType = "fact") -> str:  # noqa: A002
            """Remember something, from your point of view."""
            wanted = outcome.new_memory(text, type)
            outcome.new_events += self._deps.processes.memory_events(chat, wanted)
            return "Remembered."

        async def spawn_worker(task: Annotated[str, Field(min_length=1)]) -> str:
            """Have work done with files and commands. The result is brought to you in the conversation."""
            return f"At work, as {outcome.start_worker(task, interactive=False, by=outcome.answers)}."

        made = [
            make_tool(memory_recall, untrusted_result=True),
            make_tool(channel_recall, untrusted_result=True),
            make_tool(memory_save),
            make_tool(spawn_worker),
        ]
        return [*made, *self._ask_tool(chat, outcome)]

    def _ask_tool(self, chat: DeskChat, outcome: ChannelOutcome) -> list[AgentTool]:
        """Only where there is somebody to ask."""
        others = self._asking.allowed_characters(chat.character, chat.person)
        if not others:
            return []

        async def ask(
            character: Annotated[str, Field(min_length=1)], question: Annotated[str, Field(min_length=1)]
        ) -> str:
            """Ask another character something; it answers from its own memory."""
            return await self._asking.ask(outcome, character, question)

        made = make_tool(ask, untrusted_result=True)
        return [replace(made, description=f"{made.description} There are: {', '.join(bot.name for bot in others)}.")]
