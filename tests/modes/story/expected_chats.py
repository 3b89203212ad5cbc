"""Expected chats of random commands: their turns, and who witnessed them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.modes.story.echo_model import codes


@dataclass(frozen=True)
class ExpectedTurn:
    id: str
    text: str
    speaker: str
    witnesses: frozenset[str]
    """The characters who witnessed it."""
    guests: frozenset[str]
    """The guests when it began."""
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
    turns: list[ExpectedTurn] = field(default_factory=list)
    swipes: dict[str, dict[str, tuple[ExpectedTurn, ExpectedTurn]]] = field(default_factory=dict)
    """Message id → reply id → both turns."""
    before: tuple[list[ExpectedTurn], set[str]] | None = None
    """The turns and guests that an undo of the last rewind restores."""

    @property
    def characters(self) -> set[str]:
        return {self.host, *self.guests}

    def copy(self) -> ExpectedChat:
        swipes = {message: dict(replies) for message, replies in self.swipes.items()}
        return replace(self, guests=set(self.guests), turns=list(self.turns), swipes=swipes)
