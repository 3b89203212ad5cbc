"""A voice that asks a model for one line of chat. C7

The phrasebook stands in where a person waits for an answer, or where the room wants it so, and the model is slow, out
of order, or forgets its manners. What is late is dropped: a joke that is a minute old is not posted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from coterie.llm.errors import ModelError
from coterie.llm.messages import Priority, Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.modes.crowd.events import Outcome
from coterie.modes.crowd.voice.breath import closed, in_one_breath, rambling
from coterie.modes.crowd.voice.brief import Brief
from coterie.modes.crowd.voice.manners import Manners
from coterie.modes.crowd.voice.phrasebook import Phrasebook
from coterie.modes.crowd.voice.prompting import conversation, instructions, situation

_TRIES = 2
_LONGEST_ANSWER = 40
_DARING = 0.8
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
        told = conversation(brief)
        # What it remembers it may say; the rest of its instructions it may not.
        secret = (instructions(replace(brief, remembered=())), situation(brief))
        why = ""
        for attempt in range(_TRIES):
            prompt = Prompt(
                messages=told,
                max_tokens=_LONGEST_ANSWER,
                temperature=_DARING,
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
            text = closed(in_one_breath(self._manners.mend(answer.text, brief.persona.name)))
            why = rambling(text) or self._manners.trouble(text, secret, brief.persona.said(), to_person=brief.to_person)
            if not why:
                spoken = (
                    f"@{brief.to} {text}" if brief.to and f"@{brief.to}".casefold() not in text.casefold() else text
                )
                return Line("written", spoken, answer.model)
        return Line("refused", why=why)
