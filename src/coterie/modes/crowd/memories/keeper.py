"""What a persona keeps of a conversation, and what comes to its mind when it speaks. C11 to C13

Nothing is kept but what a person said to the persona, was answered, and stood up to the screen; never spam, never
what a persona said, never what a stranger asserts of somebody else. What says the same updates what is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping

from coterie.memory import Memory
from coterie.memory.extraction import ExtractionRequest, ExtractionTurn, Extractor, Operation, Operations
from coterie.memory.gates import ANYBODY, Viewpoint
from coterie.modes.crowd.events import room_stream
from coterie.modes.crowd.memories.plain import extract_by_rules
from coterie.modes.crowd.mind.hearing import ChatEntry
from coterie.modes.crowd.mind.screen import SpamFilter
from coterie.modes.crowd.personas.character import memory_owner
from coterie.modes.crowd.protocol import ChatMessage
from coterie.modes.crowd.voice import LineRequest

_TYPES = frozenset(["relationship", "running_joke", "preference", "persona_note", "event"])
_MIN_CONFIDENCE = 0.6
_TRUSTED_AFTER = 3
"""Answered conversations after which somebody is no stranger."""
_MAX_RECALLED = 3
_MAX_MEMORY_CHARS = 300
_DELAY_MS = 45_000
_PEOPLE_BONUS = 0.15


class PersonaMemory:
    def __init__(
        self,
        memory: Memory,
        room: str,
        personas: Collection[str],
        extractor: Extractor = extract_by_rules,
        *,
        owners: Mapping[str, str] | None = None,
        people: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`owners` are ids in the cast by persona; `people` are all there are: any of them may look in."""
        self._memory = memory
        self._owners = dict(owners or {})
        self._people = people
        self._room = room_stream(room)
        self._personas = frozenset(personas)
        self._extractor = extractor
        self._conversation_counts: dict[tuple[str, str], int] = {}
        self._pending: deque[tuple[str, ChatMessage]] = deque()

    def record_answer(self, persona: str, entry: ChatEntry) -> None:
        """A persona answered somebody. Whether anything of it is kept is decided a minute later: by then it shows
        whether the same was pasted everywhere, or its author went on to spam."""
        if entry.spam_verdict.is_informative and entry.message.author.kind == "human":
            self._pending.append((persona, entry.message))

    def store_due(self, spam_filter: SpamFilter, now_ms: int) -> int:
        """Keep what has stood for long enough. Returns how many memories that wrote."""
        written = 0
        while self._pending and self._pending[0][1].ts <= now_ms - _DELAY_MS:
            persona, message = self._pending.popleft()
            if spam_filter.still_acceptable(message):
                written += self._store(persona, message)
        return written

    def _store(self, persona: str, message: ChatMessage) -> int:
        who = message.author.name
        talks = self._conversation_counts[persona, who] = self._conversation_counts.get((persona, who), 0) + 1
        turn = ExtractionTurn(message.id, who, message.text, trusted=talks >= _TRUSTED_AFTER)
        outcome = self._memory.extract(
            [turn],
            lambda request: self._filter_operations(request, self._extractor(request)),
            owner=self._owner(persona),
            room=self._room,
            witnesses=(self._owner(persona), who),
        )
        return sum(plan.verdict == "added" for plan in outcome.planned)

    def recall(self, request: LineRequest) -> list[str]:
        """What to have in mind: of whoever is spoken to and what it is about, people before personas."""
        question = " ".join(
            [request.recipient, request.answered_text or request.about or " ".join(request.topics[:3])]
        ).strip()
        if not question:
            return []
        # A chat is read by whoever likes: before them only what is nobody's secret comes to mind. M2
        people = self._people()
        view = Viewpoint.of(self._owner(request.persona.name), self._room, [ANYBODY, *people], people)
        found = self._memory.recall_as(view, question, k=2 * _MAX_RECALLED)
        best = sorted(
            found,
            key=lambda each: -each.score - _PEOPLE_BONUS * any(who not in self._personas for who in each.memory.about),
        )
        return [each.text_with_speaker[:_MAX_MEMORY_CHARS] for each in best[:_MAX_RECALLED]]

    def _owner(self, persona: str) -> str:
        return self._owners.get(persona) or memory_owner(persona)

    def _filter_operations(self, request: ExtractionRequest, proposed: Operations) -> Operations:
        return Operations(
            operations=[_with_allowed_type(each) for each in proposed.operations if each.confidence >= _MIN_CONFIDENCE]
        )


def _with_allowed_type(operation: Operation) -> Operation:
    return operation if operation.type in _TYPES else operation.model_copy(update={"type": "persona_note"})
