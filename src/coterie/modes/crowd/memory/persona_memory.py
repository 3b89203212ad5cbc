"""What personas remember of people in the chat, and what they recall when they speak.

Only a person's message that a persona answered is stored, and only if it is no spam. Extraction is conservative: it
keeps what people say about themselves or ask to be remembered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping

from coterie.base.supervisor import run_once
from coterie.memory import (
    ANYBODY,
    ExtractionRequest,
    ExtractionTurn,
    Extractor,
    Memory,
    Operation,
    Operations,
    Viewpoint,
)
from coterie.modes.crowd.chat_signals import SpamFilter
from coterie.modes.crowd.decisions import ChatEntry
from coterie.modes.crowd.events import room_stream
from coterie.modes.crowd.memory.extraction import ModelExtractor, extract_by_rules, may_hold_memory
from coterie.modes.crowd.memory.stores import BuiltInStore, PersonaStore
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


class PersonaMemory:
    """Stores and recalls memories of a room's personas, scoped to the room and the persona."""

    def __init__(
        self,
        memory: Memory | PersonaStore,
        room: str,
        personas: Collection[str],
        extractor: Extractor = extract_by_rules,
        *,
        owners: Mapping[str, str] | None = None,
        people: Callable[[], Collection[str]] = tuple,
        model: ModelExtractor | None = None,
    ) -> None:
        """`owners` maps personas to character ids; `people` returns all known people, any of whom may read the chat.

        With a `model`, it extracts memories, and `extractor` does only where it cannot.
        """
        self._store_in: PersonaStore = BuiltInStore(memory) if isinstance(memory, Memory) else memory
        self._model = model
        self._storing: asyncio.Task[None] | None = None
        self.stored = 0
        """New memories since the beginning."""
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

    @property
    def uses_model(self) -> bool:
        return self._model is not None

    def start_storing(self, spam_filter: SpamFilter, now_ms: int) -> None:
        """Store what is due with the model, in the background and one message after the other."""
        if self._storing is None or self._storing.done():
            self._storing = run_once("memories of personas", self._store_due_with_model(spam_filter, now_ms))

    async def _store_due_with_model(self, spam_filter: SpamFilter, now_ms: int) -> None:
        while self._pending and self._pending[0][1].ts <= now_ms - _DELAY_MS:
            await self.store_next_with_model(spam_filter)

    async def stop_storing(self) -> None:
        """Stop the work in the background. What it has not stored is still pending."""
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.gather(self._storing, return_exceptions=True)

    async def store_next_with_model(self, spam_filter: SpamFilter, timeout_s: float | None = None) -> int:
        """Like `store_next`. If the model does not answer in time, the extractor decides."""
        persona, message = self._pending[0]
        proposed = None
        if self._model is not None and spam_filter.still_acceptable(message) and may_hold_memory(message.text):
            try:
                async with asyncio.timeout(timeout_s):
                    proposed = await self._model(self._prepare(persona, message))
            except TimeoutError:
                proposed = None
        self._pending.popleft()
        return self._store(persona, message, proposed) if spam_filter.still_acceptable(message) else 0

    def _prepare(self, persona: str, message: ChatMessage, *, trusted: bool = False) -> ExtractionRequest:
        turn = ExtractionTurn(message.id, message.author.name, message.text, trusted=trusted)
        return self._store_in.prepare(turn, self._owner(persona), self._room)

    def _store(self, persona: str, message: ChatMessage, proposed: Operations | None = None) -> int:
        author = message.author.name
        count = self._conversation_counts[persona, author] = self._conversation_counts.get((persona, author), 0) + 1
        request = self._prepare(persona, message, trusted=count >= _TRUSTED_AFTER)
        chosen = proposed if proposed is not None else self._extractor(request)
        new = self._store_in.store(request, self._filter_operations(chosen))
        self.stored += new
        return new

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
        recalled = self._store_in.recall(view, question, 2 * _MAX_RECALLED)
        best = sorted(
            recalled,
            key=lambda each: -each.score - _PEOPLE_BONUS * any(name not in self._personas for name in each.about),
        )
        return [each.text[:_MAX_MEMORY_CHARS] for each in best[:_MAX_RECALLED]]

    def _owner(self, persona: str) -> str:
        return self._owners.get(persona) or memory_owner(persona)

    def _filter_operations(self, proposed: Operations) -> Operations:
        return Operations(
            operations=[_with_allowed_type(each) for each in proposed.operations if each.confidence >= _MIN_CONFIDENCE]
        )


def _with_allowed_type(operation: Operation) -> Operation:
    return operation if operation.type in _TYPES else operation.model_copy(update={"type": "persona_note"})
