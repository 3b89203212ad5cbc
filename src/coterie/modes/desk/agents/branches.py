"""Branches: longer thinking on a copy of the conversation, of which only the conclusion is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from pydantic import Field

from coterie.base.clock import Clock, to_micros
from coterie.base.redaction import redact
from coterie.characters import Character, Characters, Workspaces
from coterie.eventstore import Job, JobResult, NewEvent, Store
from coterie.llm import Caller, ModelError, Models, Prompt, PromptMessage, Role
from coterie.memory import Memory, MemoryType, NewMemory
from coterie.modes.desk.agents.processes import AgentDeps, TaskType, end_key
from coterie.modes.desk.agents.tools import AgentTool, Toolbox, make_tool
from coterie.modes.desk.errors import QuestionRefused
from coterie.modes.desk.events import BranchEnd, BranchEnded, CharacterAsked
from coterie.modes.desk.jobs import ChannelOutcome, wake_job
from coterie.modes.desk.queries import Audience, DeskChat
from coterie.modes.desk.text_safety import UNTRUSTED_TEXT_RULE, LeakGuard, mark_untrusted

MayTalk = Callable[[str, str], bool]
"""Whether a person may talk with a character."""
_MEMORIES = 12
_ANSWER = (
    "Another character, {asker}, asks you something on behalf of {person}. Answer in a few sentences, from what you "
    "remember. Admit it if you do not know; reveal nothing that {person} should not know."
)


class CharacterQuestions:
    """Lets one character ask another, which answers from its own memory without tools.

    The person must be allowed to talk with the other character, and questions per day are limited. Both characters
    remember the exchange.
    """

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
        max_per_day: int,
    ) -> None:
        self._store = store
        self._characters = characters
        self._workspaces = workspaces
        self._memory = memory
        self._audience = audience
        self._models = models
        self._clock = clock
        self._may_talk = may_talk
        self._max_per_day = max_per_day
        self._guard = LeakGuard()

    def allowed_characters(self, character: str, person: str) -> list[Character]:
        """Other characters that it may ask on behalf of the person."""
        return [other for other in self._characters.all() if other.id != character and self._may_talk(person, other.id)]

    async def ask(self, outcome: ChannelOutcome, name: str, question: str) -> str:
        chat = outcome.chat
        asker, asked = self._characters.get(chat.character), self._allowed(outcome, name)
        if self._asked_today(chat.character) >= self._max_per_day:
            raise QuestionRefused(f"You have asked others {self._max_per_day} times today.", "Ask again tomorrow.")
        recalled = await asyncio.to_thread(self._audience.recall_for_other, asked.id, chat, question, _MEMORIES)
        outcome.note_recalled(recalled)
        instructions = [
            f"You are {asked.name}.",
            self._persona(asked),
            _ANSWER.format(asker=asker.name, person=chat.person),
            UNTRUSTED_TEXT_RULE,
        ]
        memories = mark_untrusted(
            "\n".join(f"- {memory.text_with_speaker}" for memory in recalled) or "(nothing)", "your memory"
        )
        prompt = Prompt.of(
            f"{memories}\n\n{asker.name} asks: {question}", system="\n\n".join(filter(None, instructions))
        )
        answer = await self._models.ask(Role.BRANCH, prompt, caller=Caller(chat.room, asked.id))
        text = self._guard.redact(answer.text.strip()) or "(no answer)"
        payload = CharacterAsked(branch=outcome.answers, asker=asker.id, asked=asked.id, question=question, answer=text)
        # Stored at once and not with the branch: the call was made and counts against the limit.
        await self._store.append([NewEvent(chat.room, payload, asker.id)])
        outcome.new_events += self._memory_events(outcome, asker, asked, question, text)
        return f"{asked.name} says: {text}"

    def _allowed(self, outcome: ChannelOutcome, name: str) -> Character:
        asked = self._characters.find(name)
        if asked.id not in {other.id for other in self.allowed_characters(outcome.chat.character, outcome.chat.person)}:
            fix = "Ask a character that the person may talk with."
            raise QuestionRefused(f"{asked.name} may not be asked here.", fix)
        return asked

    def _memory_events(
        self, outcome: ChannelOutcome, asker: Character, asked: Character, question: str, answer: str
    ) -> list[NewEvent]:
        """A memory of the exchange for each of the two, attributed to the other."""
        room = outcome.chat.room
        witnesses = tuple(sorted({asked.id, *self._audience.witnesses(outcome.chat)}))
        answer_memory = NewMemory(
            f"{asked.name} told me: {answer}",
            asker.id,
            room,
            speaker=asked.name,
            told_by=asked.id,
            witnesses=witnesses,
            sources=(outcome.answers,),
            reliability=0.8,
            private=outcome.private,
        )
        question_memory = NewMemory(
            f"{asker.name} asked me: {question}",
            asked.id,
            room,
            speaker=asker.name,
            told_by=asker.id,
            witnesses=witnesses,
            private=outcome.private,
        )
        planned = self._memory.writer.plan([answer_memory, question_memory], by_meaning=True)
        return [event for plan in planned for event in plan.new_events]

    def _persona(self, character: Character) -> str:
        own = self._workspaces.texts(character.id)
        return "\n\n".join(part for part in (own.identity or character.identity.persona, own.soul) if part)

    def _asked_today(self, character: str) -> int:
        since = to_micros(self._clock.now() - timedelta(days=1))
        sql = "SELECT count(*) FROM desk_asked WHERE asker = ? AND at >= ?"
        return int(self._store.query(sql, (character, since))[0][0])


MAX_TURNS = 10
STALE_AFTER_S = 60.0


class Branches:
    """Runs branches as jobs."""

    def __init__(
        self,
        deps: AgentDeps,
        audience: Audience,
        questions: CharacterQuestions,
        *,
        stale_after_s: float = STALE_AFTER_S,
    ) -> None:
        self._deps = deps
        self._audience = audience
        self._questions = questions
        self._stale_after_s = stale_after_s

    async def run_branch(self, job: Job) -> JobResult | None:
        branch = self._deps.queries.process(str(job.payload["room"]), str(job.payload["branch"]))
        if not branch.active:
            return None
        chat = self._deps.queries.chat(branch.room)
        outcome = ChannelOutcome(chat, branch.id)
        work = self._conclude(chat, outcome, self._deps.prompts.branch(chat, branch), branch.task_type)
        ended = await self._deps.processes.run_cancellable(branch, work)
        if ended is None or not self._deps.queries.process(branch.room, branch.id).active:
            return None
        state, conclusion = ended
        payload = BranchEnded(branch=branch.id, state=state, conclusion=self._deps.guard.redact(conclusion))
        new_events = [*outcome.new_events, NewEvent(branch.room, payload, chat.character, key=end_key(branch))]
        return JobResult(new_events, [*outcome.jobs, wake_job(branch.room, branch.id, "end")])

    async def _conclude(
        self, chat: DeskChat, outcome: ChannelOutcome, messages: list[PromptMessage], task_type: str
    ) -> tuple[BranchEnd, str]:
        box = Toolbox(self._tools(chat, outcome), self._deps.guard)
        try:
            async with asyncio.timeout(self._stale_after_s):
                for _ in range(MAX_TURNS):
                    prompt = Prompt(messages=tuple(messages), tools=box.schemas)
                    answer = await self._deps.models.ask(
                        Role.BRANCH, prompt, caller=Caller(chat.room, chat.character), task=task_type
                    )
                    if not answer.calls:
                        return "done", answer.text.strip() or "No conclusion."
                    messages.append(PromptMessage(role="assistant", text=answer.text, calls=answer.calls))
                    messages += [
                        PromptMessage(role="tool", text=redact(await box.use(call)), answers=call)
                        for call in answer.calls
                    ]
        except TimeoutError:
            return "stale", f"No conclusion within {self._stale_after_s:.0f} s."
        except ModelError as error:
            return "failed", str(error)
        return "failed", f"No conclusion after {MAX_TURNS} turns."

    def _tools(self, chat: DeskChat, outcome: ChannelOutcome) -> list[AgentTool]:
        async def memory_recall(
            question: Annotated[str, Field(min_length=1)], most: Annotated[int, Field(ge=1, le=20)] = 8
        ) -> str:
            """What you remember about something."""
            memories = await asyncio.to_thread(self._audience.recall, chat, question, most)
            outcome.note_recalled(memories)
            return "\n".join(f"- {memory.text_with_speaker}" for memory in memories) or "You remember nothing about it."

        async def channel_recall(text: Annotated[str, Field(min_length=1)]) -> str:
            """Lines of this conversation, however old, that contain a text."""
            needle = text.casefold()
            lines = [line for line in self._deps.queries.archive(chat.room) if needle in line.text.casefold()]
            return "\n".join(f"{line.role}: {line.text[:500]}" for line in lines[-20:]) or "No line contains it."

        async def memory_save(text: Annotated[str, Field(min_length=1)], type: MemoryType = "fact") -> str:  # noqa: A002
            """Remember something, from your point of view."""
            memory = outcome.new_memory(text, type)
            outcome.new_events += self._deps.processes.memory_events(chat, memory)
            return "Remembered."

        async def spawn_worker(task: Annotated[str, Field(min_length=1)], type: TaskType = "") -> str:  # noqa: A002
            """Have work done with files and commands. You receive the result in the conversation."""
            known = self._deps.known_task_type(type)
            worker = outcome.start_worker(task, interactive=False, by=outcome.answers, task_type=known)
            return f"Started as {worker}."

        tools = [
            make_tool(memory_recall, untrusted_result=True),
            make_tool(channel_recall, untrusted_result=True),
            make_tool(memory_save),
            self._deps.with_task_types(make_tool(spawn_worker)),
        ]
        return [*tools, *self._ask_tool(chat, outcome)]

    def _ask_tool(self, chat: DeskChat, outcome: ChannelOutcome) -> list[AgentTool]:
        """The tool `ask`, if there is a character to ask."""
        others = self._questions.allowed_characters(chat.character, chat.person)
        if not others:
            return []

        async def ask(
            character: Annotated[str, Field(min_length=1)], question: Annotated[str, Field(min_length=1)]
        ) -> str:
            """Ask another character something; it answers from its own memory."""
            return await self._questions.ask(outcome, character, question)

        tool = make_tool(ask, untrusted_result=True)
        return [
            replace(tool, description=f"{tool.description} Characters: {', '.join(other.name for other in others)}.")
        ]
