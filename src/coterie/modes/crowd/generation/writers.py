"""A voice that needs no model: the persona's own lines, chosen by the situation and filled in with what is going on.

It is what a room sounds like offline, what stands in when a model is late or out of order, and what makes a simulated
evening the same everywhere.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from coterie.llm.errors import ModelError
from coterie.llm.messages import Priority, Prompt
from coterie.llm.router import Caller, Models
from coterie.llm.settings import Role
from coterie.modes.crowd.decisions.decision import derive_seed
from coterie.modes.crowd.events import LineOutcome
from coterie.modes.crowd.generation.line_rules import LineRules, length_problem, remove_unpaired_marks, shorten
from coterie.modes.crowd.generation.prompts import LineRequest, build_messages, instructions, situation_text
from coterie.modes.crowd.personas import Situation

_FALLBACK_SITUATIONS: dict[Situation, tuple[Situation, ...]] = {
    "question": ("topic", "idle"),
    "topic": ("idle",),
    "mention": ("reply", "idle"),
    "reply": ("mention", "idle"),
}
"""Where else to look when the first lines will not do."""


class CannedLines:
    name = "phrasebook"

    def write(self, request: LineRequest, attempt: int = 0) -> str:
        """A line, or nothing if there is none for this. Another attempt is another line."""
        lines: list[str] = []
        for situation in (request.situation, *_FALLBACK_SITUATIONS.get(request.situation, ("idle",))):
            said = request.persona.lines.get(situation, ())
            lines += _rotated([line for line in said if request.topics or "{topic}" not in line], request.seed)
        if attempt >= len(lines):
            return ""
        line = lines[attempt]
        emotes = request.persona.emotes
        topics = request.topics or ("",)
        filled = line.format(
            topic=topics[derive_seed(request.seed, "topic") % min(3, len(topics))],
            name=request.recipient or "chat",
            emote=emotes[derive_seed(request.seed, attempt, "emote") % len(emotes)] if emotes else "",
        ).strip()
        return (
            f"@{request.recipient} {filled}" if request.recipient and f"@{request.recipient}" not in filled else filled
        )


def _rotated(lines: list[str], seed: int) -> list[str]:
    """The same lines, beginning somewhere else."""
    start = derive_seed(seed, "phrase") % len(lines) if lines else 0
    return lines[start:] + lines[:start]


# A voice that asks a model for one line of chat. C7
#
# The phrasebook stands in where a person waits for an answer, or where the room wants it so, and the model is slow, out
# of order, or forgets its manners. What is late is dropped: a joke that is a minute old is not posted.


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
        secret = (instructions(replace(request, memories=())), situation_text(request))
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
