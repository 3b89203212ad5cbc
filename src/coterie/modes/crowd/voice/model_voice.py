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
from coterie.modes.crowd.events import LineOutcome
from coterie.modes.crowd.voice.breath import length_problem, remove_unpaired_marks, shorten
from coterie.modes.crowd.voice.brief import LineRequest
from coterie.modes.crowd.voice.manners import LineRules
from coterie.modes.crowd.voice.phrasebook import CannedLines
from coterie.modes.crowd.voice.prompting import build_messages, instructions, situation_text

_ATTEMPTS = 2
_MAX_TOKENS = 40
_TEMPERATURE = 0.8
_MODEL_TIME_SHARE = 0.6
"""How much of its time a line may take before the phrasebook speaks instead."""


@dataclass(frozen=True, slots=True)
class WrittenLine:
    outcome: LineOutcome
    text: str = ""
    model: str = ""
    reason: str = ""


class CannedLineWriter:
    """The phrasebook alone, as a voice for a live room."""

    def __init__(self, manners: LineRules) -> None:
        self._rules = manners
        self._lines = CannedLines()

    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        why = "there is nothing it would say"
        for attempt in range(2 * _ATTEMPTS + 2):
            text = self._rules.clean(self._lines.write(request, attempt), request.persona.name)
            why = self._rules.rejection_reason(text, to_person=request.recipient_is_person)
            if not why:
                return WrittenLine("written", text, self._lines.name)
        return WrittenLine("refused", reason=why)


class ModelLineWriter:
    def __init__(self, models: Models, manners: LineRules, room: str, *, stand_in: bool = False) -> None:
        self._models = models
        self._rules = manners
        self._room = room
        self._canned = CannedLineWriter(manners)
        self._stand_in = stand_in

    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        stand_in = self._stand_in or request.recipient_is_person
        patience_s = deadline_s * _MODEL_TIME_SHARE if stand_in else deadline_s
        try:
            async with asyncio.timeout(patience_s):
                line = await self._ask(request, patience_s)
        except TimeoutError:
            line = WrittenLine("late", reason=f"it was not written within {patience_s:.0f} s")
        except ModelError as error:
            line = WrittenLine("failed", reason=error.what)
        if line.outcome != "written" and stand_in:
            return await self._canned.write(request, deadline_s)
        return line

    async def _ask(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        told = build_messages(request)
        # What it remembers it may say; the rest of its instructions it may not.
        secret = (instructions(replace(request, remembered=())), situation_text(request))
        why = ""
        for attempt in range(_ATTEMPTS):
            prompt = Prompt(
                messages=told,
                max_tokens=_MAX_TOKENS,
                temperature=_TEMPERATURE,
                seed=(request.seed + attempt) % 2**31,
                stop=("\n",),
            )
            answer = await self._models.ask(
                Role.CROWD,
                prompt,
                caller=Caller(room=self._room, character=request.persona.name),
                priority=Priority.PERSON if request.recipient_is_person else Priority.CHARACTER,
                deadline_s=deadline_s,
            )
            text = remove_unpaired_marks(shorten(self._rules.clean(answer.text, request.persona.name)))
            why = length_problem(text) or self._rules.rejection_reason(
                text, secret, request.persona.complete_lines(), to_person=request.recipient_is_person
            )
            if not why:
                spoken = (
                    f"@{request.recipient} {text}"
                    if request.recipient and f"@{request.recipient}".casefold() not in text.casefold()
                    else text
                )
                return WrittenLine("written", spoken, answer.model)
        return WrittenLine("refused", reason=why)
