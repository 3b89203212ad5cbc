"""What everybody in the room has heard: the last messages, how long each chain of personas is, who was answered.

One hearing is shared by all personas of a process, since all hear the same; none of them writes to it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from coterie.modes.crowd.mind.screen import Screen, Standing
from coterie.modes.crowd.mind.words import telling
from coterie.modes.crowd.protocol import ChatMessage, StreamContext

_KEPT = 400


@dataclass(slots=True)
class Heard:
    message: ChatMessage
    chain: int
    """How many personas in a row lead to it, itself included; 0 for a person's message."""
    words: frozenset[str]
    standing: Standing
    answered_by: set[str] = field(default_factory=set)

    @property
    def human(self) -> bool:
        return self.message.author.kind != "persona"


class Hearing:
    def __init__(self) -> None:
        self.recent: deque[Heard] = deque()
        self.context: StreamContext | None = None
        self.context_at = -(10**15)
        self.person_at = -(10**15)
        self.number = 0
        self._by_id: dict[str, Heard] = {}
        self.screen = Screen()

    def hear(self, message: ChatMessage) -> Heard:
        before = self._by_id.get(message.reply_to or "")
        led_here = before.chain if before is not None else 0
        chain = 1 + led_here if message.author.kind == "persona" else 0
        heard = Heard(message, chain, frozenset(telling(message.text)), self.screen.judge(message))
        if not heard.standing.spam and chain == 0:
            self.person_at = message.ts
        if before is not None:
            before.answered_by.add(message.author.name)
        self.recent.append(heard)
        self._by_id[message.id] = heard
        self.number = message.number
        if len(self.recent) > _KEPT:
            del self._by_id[self.recent.popleft().message.id]
        return heard

    def attend(self, context: StreamContext, at_ms: int) -> None:
        self.context = context
        self.context_at = at_ms

    def find(self, message_id: str) -> Heard | None:
        return self._by_id.get(message_id)
