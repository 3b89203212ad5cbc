"""A voice that asks a model: who the persona is, what is going on, and one line of chat in return. C7

The phrasebook stands in where a person waits for an answer, or where the room wants it so, and the model is slow, out
of order, or forgets its manners. What is late is dropped: a joke that is a minute old is not posted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from coterie.llm.errors import ModelError
from coterie.llm.messages import Priority, Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.modes.crowd.events import Outcome
from coterie.modes.crowd.voice.brief import Brief
from coterie.modes.crowd.voice.manners import Manners
from coterie.modes.crowd.voice.phrasebook import Phrasebook

_TRIES = 2
_LONGEST_ANSWER = 48
_EXAMPLES = 6
_PATIENCE = 0.6
"""How much of its time a line may take before the phrasebook speaks instead."""


@dataclass(frozen=True, slots=True)
class Line:
    outcome: Outcome
    text: str = ""
    model: str = ""
    why: str = ""


class PhrasebookVoice:
    """The phrasebook alone, as a voice for a live room."""

    def __init__(self, manners: Manners) -> None:
        self._manners = manners
        self._book = Phrasebook()

    async def write(self, brief: Brief, deadline_s: float) -> Line:
        why = "there is nothing it would say"
        for attempt in range(2 * _TRIES + 2):
            text = self._manners.mend(self._book.write(brief, attempt), brief.persona.name)
            why = self._manners.trouble(text, to_person=brief.to_person)
            if not why:
                return Line("written", text, self._book.name)
        return Line("refused", why=why)


class ModelVoice:
    def __init__(self, models: Models, manners: Manners, room: str, *, stand_in: bool = False) -> None:
        self._models = models
        self._manners = manners
        self._room = room
        self._phrasebook = PhrasebookVoice(manners)
        self._stand_in = stand_in

    async def write(self, brief: Brief, deadline_s: float) -> Line:
        stand_in = self._stand_in or brief.to_person
        patience_s = deadline_s * _PATIENCE if stand_in else deadline_s
        try:
            async with asyncio.timeout(patience_s):
                line = await self._ask(brief, patience_s)
        except TimeoutError:
            line = Line("late", why=f"it was not written within {patience_s:.0f} s")
        except ModelError as error:
            line = Line("failed", why=error.what)
        if line.outcome != "written" and stand_in:
            return await self._phrasebook.write(brief, deadline_s)
        return line

    async def _ask(self, brief: Brief, deadline_s: float) -> Line:
        system, user = instructions(brief), situation(brief)
        why = ""
        for attempt in range(_TRIES):
            prompt = Prompt.of(
                user,
                system=system,
                max_tokens=_LONGEST_ANSWER,
                temperature=0.9,
                seed=(brief.seed + attempt) % 2**31,
                stop=("\n",),
            )
            answer = await self._models.ask(
                Role.CROWD,
                prompt,
                caller=Caller(room=self._room, character=brief.persona.name),
                priority=Priority.PERSON if brief.to_person else Priority.CHARACTER,
                deadline_s=deadline_s,
            )
            text = self._manners.mend(answer.text, brief.persona.name)
            why = self._manners.trouble(text, (system, user), to_person=brief.to_person)
            if not why:
                spoken = (
                    f"@{brief.to} {text}" if brief.to and f"@{brief.to}".casefold() not in text.casefold() else text
                )
                return Line("written", spoken, answer.model)
        return Line("refused", why=why)


def instructions(brief: Brief) -> str:
    persona = brief.persona
    examples = [line for said in persona.lines.values() for line in said if "{" not in line][:_EXAMPLES]
    known = [f"You remember: {text}" for text in brief.remembered]
    return "\n".join(
        [
            f"You are {persona.name}, a regular in a stream's chat. {persona.bio}",
            f"How you write: {persona.voice}",
            "Things you have said before, not to be repeated:",
            *(f"- {example}" for example in examples),
            *known,
            "Write one short line of chat, as yourself. No quotation marks, no name before it, nothing else.",
        ]
    )


def situation(brief: Brief) -> str:
    """What is going on, as data: whatever people wrote stands in quotation marks."""
    told = []
    if brief.transcript:
        told.append(f'The streamer said: "{brief.transcript[-300:]}"')
    if brief.recent:
        told.append("Chat:")
        told += [f"{name}: {text}" for name, text in brief.recent[-6:]]
    if brief.to:
        told.append(f'{brief.to} wrote: "{brief.said}" Answer {brief.to}.')
    elif brief.event:
        told.append(f"Something just happened ({brief.event.replace('_', ' ')}). React to it.")
    else:
        told.append("Say something.")
    return "\n".join(told)
