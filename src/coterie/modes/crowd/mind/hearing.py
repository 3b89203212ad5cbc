"""What everybody in the room has heard: the last messages, how long each chain of personas is, who was answered.

One hearing is shared by all personas of a process, since all hear the same; none of them writes to it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from coterie.modes.crowd.mind.screen import SpamFilter, SpamVerdict
from coterie.modes.crowd.mind.words import chat_keywords
from coterie.modes.crowd.protocol import ChatMessage, StreamContext

_MAX_ENTRIES = 400


@dataclass(slots=True)
class ChatEntry:
    message: ChatMessage
    chain: int
    """How many personas in a row lead to it, itself included; 0 for a person's message."""
    words: frozenset[str]
    spam_verdict: SpamVerdict
    answered_by: set[str] = field(default_factory=set)

    @property
    def human(self) -> bool:
        return self.message.author.kind != "persona"


class ChatHistory:
    def __init__(self) -> None:
        self.recent: deque[ChatEntry] = deque()
        self.context: StreamContext | None = None
        self.context_ms = -(10**15)
        self.last_person_ms = -(10**15)
        self.last_number = 0
        self._by_id: dict[str, ChatEntry] = {}
        self.spam_filter = SpamFilter()

    def add(self, message: ChatMessage) -> ChatEntry:
        before = self._by_id.get(message.reply_to or "")
        led_here = before.chain if before is not None else 0
        chain = 1 + led_here if message.author.kind == "persona" else 0
        heard = ChatEntry(message, chain, frozenset(chat_keywords(message.text)), self.spam_filter.check(message))
        if not heard.spam_verdict.is_spam and chain == 0:
            self.last_person_ms = message.ts
        if before is not None:
            before.answered_by.add(message.author.name)
        self.recent.append(heard)
        self._by_id[message.id] = heard
        self.last_number = message.number
        if len(self.recent) > _MAX_ENTRIES:
            del self._by_id[self.recent.popleft().message.id]
        return heard

    def set_context(self, context: StreamContext, at_ms: int) -> None:
        self.context = context
        self.context_ms = at_ms

    def find(self, message_id: str) -> ChatEntry | None:
        return self._by_id.get(message_id)
