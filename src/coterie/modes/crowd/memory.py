"""What personas remember of people in the chat, and what they recall when they speak.

Only a person's message that a persona answered is stored, and only if it is no spam. Extraction works by rules, without
a model, and is conservative: it keeps what people say about themselves or ask to be remembered.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping

from coterie.memory import (
    ANYBODY,
    ExtractionRequest,
    ExtractionTurn,
    Extractor,
    Memory,
    MemoryType,
    Operation,
    Operations,
    Viewpoint,
)
from coterie.modes.crowd.chat_signals import SpamFilter
from coterie.modes.crowd.decisions import ChatEntry
from coterie.modes.crowd.events import room_stream
from coterie.modes.crowd.personas import memory_owner
from coterie.modes.crowd.prompts import LineRequest
from coterie.modes.crowd.protocol import ChatMessage

_TYPES = frozenset(["relationship", "running_joke", "preference", "persona_note", "event"])
_MIN_CONFIDENCE = 0.6
_TRUSTED_AFTER = 3
"""Answered conversations after which a person's statements are trusted."""
_MAX_RECALLED = 3
_MAX_MEMORY_CHARS = 300
_DELAY_MS = 45_000
_PEOPLE_BONUS = 0.15

_JOKE = r"(?i)\b(?:running joke|our joke|inside joke|never forget|remember (?:when|the|that|how))\b"
_RELATIONSHIP = r"(?i)\bcall me\b|\bmy name is\b|\bi(?:'m| am) your\b|\bwe (?:are|were) (?:friends|rivals)\b"
_PREFERENCE = (
    r"(?i)\bi (?:really )?(?:like|love|hate|prefer|adore|can't stand|collect|play|cook|grow)\b|\bmy favou?rite\b"
)
_LIFE_EVENT = (
    r"(?i)\bi (?:just |finally )?(?:passed|finished|moved|adopted|won|started|quit)\b|\bmy (?:birthday|exam|wedding)\b"
)
_RULES: tuple[tuple[re.Pattern[str], MemoryType, float], ...] = (
    (re.compile(_JOKE), "running_joke", 0.8),
    (re.compile(_RELATIONSHIP), "relationship", 0.8),
    (re.compile(_PREFERENCE), "preference", 0.8),
    (re.compile(_LIFE_EVENT), "event", 0.7),
)


def extract_by_rules(request: ExtractionRequest) -> Operations:
    """Propose memories from patterns such as "my favourite" or "remember that"."""
    operations = []
    for turn in request.turns:
        if "?" in turn.text and "remember" not in turn.text.casefold():
            continue
        for pattern, kind, confidence in _RULES:
            if pattern.search(turn.text):
                text = f"{turn.speaker}: " + re.sub(r"@\S+\s*", "", turn.text).strip()
                operations.append(
                    Operation(
                        op="ADD", text=text, type=kind, evidence=[turn.id], about=[turn.speaker], confidence=confidence
                    )
                )
                break
    return Operations(operations=operations)


class PersonaMemory:
    """Stores and recalls memories of a room's personas, scoped to the room and the persona."""

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
        """`owners` maps personas to character ids; `people` returns all known people, any of whom may read the chat."""
        self._memory = memory
        self._owners = dict(owners or {})
        self._people = people
        self._room = room_stream(room)
        self._personas = frozenset(personas)
        self._extractor = extractor
        self._conversation_counts: dict[tuple[str, str], int] = {}
        self._pending: deque[tuple[str, ChatMessage]] = deque()

    def record_answer(self, persona: str, entry: ChatEntry) -> None:
        """Queue an answered message. It is stored later, once it is clear that its author did not go on to spam."""
        if entry.spam_verdict.is_informative and entry.message.author.kind == "human":
            self._pending.append((persona, entry.message))

    def store_due(self, spam_filter: SpamFilter, now_ms: int) -> int:
        """Store queued messages whose delay has passed. Returns the number of new memories."""
        written = 0
        while self._pending and self._pending[0][1].ts <= now_ms - _DELAY_MS:
            persona, message = self._pending.popleft()
            if spam_filter.still_acceptable(message):
                written += self._store(persona, message)
        return written

    @property
    def pending(self) -> int:
        """Answered messages that are not stored yet."""
        return len(self._pending)

    def store_next(self, spam_filter: SpamFilter) -> int:
        """Store the oldest queued message without waiting for its delay, at the end of a session."""
        persona, message = self._pending.popleft()
        return self._store(persona, message) if spam_filter.still_acceptable(message) else 0

    def skip_due(self, now_ms: int) -> None:
        """Remove queued messages whose delay has passed: they were stored before the server stopped."""
        while self._pending and self._pending[0][1].ts <= now_ms - _DELAY_MS:
            self._pending.popleft()

    def _store(self, persona: str, message: ChatMessage) -> int:
        author = message.author.name
        count = self._conversation_counts[persona, author] = self._conversation_counts.get((persona, author), 0) + 1
        turn = ExtractionTurn(message.id, author, message.text, trusted=count >= _TRUSTED_AFTER)
        outcome = self._memory.extract(
            [turn],
            lambda request: self._filter_operations(request, self._extractor(request)),
            owner=self._owner(persona),
            room=self._room,
            witnesses=(self._owner(persona), author),
        )
        return sum(plan.verdict == "added" for plan in outcome.planned)

    def recall(self, request: LineRequest) -> list[str]:
        """Return memories about the recipient and the topic, those about people first."""
        question = " ".join(
            [request.recipient, request.answered_text or request.about or " ".join(request.topics[:3])]
        ).strip()
        if not question:
            return []
        # Anybody may read the chat, so only memories that nobody is excluded from are recalled.
        people = self._people()
        view = Viewpoint.of(self._owner(request.persona.name), self._room, [ANYBODY, *people], people)
        recalled = self._memory.recall_as(view, question, k=2 * _MAX_RECALLED)
        best = sorted(
            recalled,
            key=lambda each: (
                -each.score - _PEOPLE_BONUS * any(name not in self._personas for name in each.memory.about)
            ),
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
