"""The books beside a random play: what was said on each line of it, and who heard it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.modes.story.echo_model import codes


@dataclass(frozen=True)
class ExpectedTurn:
    id: str
    text: str
    speaker: str
    heard: frozenset[str]
    """The characters who heard it."""
    guests: frozenset[str]
    """Who was a guest when it began."""
    private: bool
    step: int

    @property
    def codes(self) -> list[str]:
        return codes(self.text)


@dataclass
class ExpectedChat:
    room: str
    root: str
    host: str
    guests: set[str] = field(default_factory=set)
    said: list[ExpectedTurn] = field(default_factory=list)
    swipes: dict[str, dict[str, tuple[ExpectedTurn, ExpectedTurn]]] = field(default_factory=dict)
    """Message → reply → both as they were."""
    before: tuple[list[ExpectedTurn], set[str]] | None = None
    """What an undo of the last rewind brings back."""

    @property
    def characters(self) -> set[str]:
        return {self.host, *self.guests}

    def copy(self) -> ExpectedChat:
        swipes = {message: dict(replies) for message, replies in self.swipes.items()}
        return replace(self, guests=set(self.guests), said=list(self.said), swipes=swipes)
