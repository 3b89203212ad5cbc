"""Everything a persona has in mind when it begins to write: what led to it, to whom, and what it could be about."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.modes.crowd.personas import Persona, Situation
from coterie.modes.crowd.protocol.chat_message import SpeakReason

_SITUATIONS: dict[str, Situation] = {
    "hype": "hype",
    "clutch": "hype",
    "raid": "hype",
    "fail": "fail",
    "chat_question": "question",
}


@dataclass(frozen=True)
class LineRequest:
    persona: Persona
    tick: int
    because: SpeakReason
    seed: int
    event: str = ""
    about: str = ""
    """What the event or the question was about, in a few words."""
    topics: tuple[str, ...] = ()
    """Words the stream is about, those this persona cares for first."""
    recipient: str = ""
    """Whom it answers."""
    answered_text: str = ""
    """What they said."""
    recipient_is_person: bool = False
    transcript: str = ""
    recent: tuple[tuple[str, str], ...] = ()
    """The last lines of the chat: who, and what."""
    memories: tuple[str, ...] = field(default=())

    @property
    def situation(self) -> Situation:
        if self.because == "mention":
            return "mention"
        if self.because == "reply":
            return "reply"
        if self.event in _SITUATIONS:
            return _SITUATIONS[self.event]
        return "topic" if self.topics else "idle"
