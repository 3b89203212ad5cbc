"""What a persona keeps of a conversation, and what comes to its mind when it speaks. C11 to C13

Nothing is kept but what a person said to the persona, was answered, and stood up to the screen; never spam, never
what a persona said, never what a stranger asserts of somebody else. What says the same updates what is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from coterie.memory import Memory
from coterie.memory.extraction import Extractor, Operation, Operations, Request, Turn
from coterie.memory.gates import ANYBODY, Viewpoint
from coterie.modes.crowd.events import stream
from coterie.modes.crowd.memories.plain import plain_extractor
from coterie.modes.crowd.mind.hearing import Heard
from coterie.modes.crowd.mind.screen import Screen
from coterie.modes.crowd.personas.character import owner_of
from coterie.modes.crowd.protocol import ChatMessage
from coterie.modes.crowd.voice import Brief

_TYPES = frozenset(["relationship", "running_joke", "preference", "persona_note", "event"])
_LEAST_SURE = 0.6
_KNOWN_AFTER = 3
"""Answered conversations after which somebody is no stranger."""
_RECALLED = 3
_LONGEST = 300
_COOLING_MS = 45_000
_FOR_PEOPLE = 0.15


class Keeper:
    def __init__(
        self,
        memory: Memory,
        room: str,
        personas: Collection[str],
        extractor: Extractor = plain_extractor,
        *,
        owners: Mapping[str, str] | None = None,
        people: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`owners` are ids in the cast by persona; `people` are all there are: any of them may look in."""
        self._memory = memory
        self._owners = dict(owners or {})
        self._people = people
        self._room = stream(room)
        self._personas = frozenset(personas)
        self._extractor = extractor
        self._talks: dict[tuple[str, str], int] = {}
        self._lately: deque[tuple[str, ChatMessage]] = deque()

    def talked(self, persona: str, heard: Heard) -> None:
        """A persona answered somebody. Whether anything of it is kept is decided a minute later: by then it shows
        whether the same was pasted everywhere, or its author went on to spam."""
        if heard.standing.evidence and heard.message.author.kind == "human":
            self._lately.append((persona, heard.message))

    def settle(self, screen: Screen, now_ms: int) -> int:
        """Keep what has stood for long enough. Returns how many memories that wrote."""
        written = 0
        while self._lately and self._lately[0][1].ts <= now_ms - _COOLING_MS:
            persona, message = self._lately.popleft()
            if screen.stands(message):
                written += self._keep(persona, message)
        return written

    def _keep(self, persona: str, message: ChatMessage) -> int:
        who = message.author.name
        talks = self._talks[persona, who] = self._talks.get((persona, who), 0) + 1
        turn = Turn(message.id, who, message.text, trusted=talks >= _KNOWN_AFTER)
        outcome = self._memory.extract(
            [turn],
            lambda request: self._conservative(request, self._extractor(request)),
            owner=self._owner(persona),
            room=self._room,
            witnesses=(self._owner(persona), who),
        )
        return sum(plan.verdict == "added" for plan in outcome.planned)

    def recall(self, brief: Brief) -> list[str]:
        """What to have in mind: of whoever is spoken to and what it is about, people before personas."""
        question = " ".join([brief.to, brief.said or brief.about or " ".join(brief.topics[:3])]).strip()
        if not question:
            return []
        # A chat is read by whoever likes: before them only what is nobody's secret comes to mind. M2
        people = self._people()
        view = Viewpoint.of(self._owner(brief.persona.name), self._room, [ANYBODY, *people], people)
        found = self._memory.recall_as(view, question, k=2 * _RECALLED)
        best = sorted(
            found,
            key=lambda each: -each.score - _FOR_PEOPLE * any(who not in self._personas for who in each.memory.about),
        )
        return [each.told[:_LONGEST] for each in best[:_RECALLED]]

    def _owner(self, persona: str) -> str:
        return self._owners.get(persona) or owner_of(persona)

    def _conservative(self, request: Request, proposed: Operations) -> Operations:
        return Operations(operations=[_fitting(each) for each in proposed.operations if each.confidence >= _LEAST_SURE])


def _fitting(operation: Operation) -> Operation:
    return operation if operation.type in _TYPES else operation.model_copy(update={"type": "persona_note"})
