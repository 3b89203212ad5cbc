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
    answers: str = ""
    """The message that a reply answers."""
    hidden: bool = False
    """Left out of prompts and memories."""

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
    deleted: list[ExpectedTurn] = field(default_factory=list)
    """The turns that were deleted and can be restored."""
    inherited: frozenset[str] = frozenset()
    """The code words of the turns that a fork began with. Its relationships began as one set of values, so that these
    keep them when the fork changes such a turn."""
    before: tuple[list[ExpectedTurn], set[str], list[ExpectedTurn]] | None = None
    """The turns, guests and deleted turns that an undo of the last rewind restores."""

    @property
    def characters(self) -> set[str]:
        return {self.host, *self.guests}

    def copy(self) -> ExpectedChat:
        swipes = {message: dict(replies) for message, replies in self.swipes.items()}
        return replace(self, guests=set(self.guests), turns=list(self.turns), deleted=list(self.deleted), swipes=swipes)

    def guests_after(self, turn: ExpectedTurn) -> set[str]:
        """The guests when the next turn, deleted or not, began; the present ones if it is the last."""
        later = [one for one in (*self.turns, *self.deleted) if one.id > turn.id]
        return set(min(later, key=lambda one: one.id).guests) if later else set(self.guests)

    def replace_turn(self, turn: ExpectedTurn) -> None:
        """The same turn with other properties, in alternatives too."""
        self.turns = [turn if one.id == turn.id else one for one in self.turns]
        for replies in self.swipes.values():
            for reply, (message, given) in replies.items():
                replies[reply] = (turn if message.id == turn.id else message, turn if given.id == turn.id else given)

    @property
    def last_exchange(self) -> tuple[ExpectedTurn, ExpectedTurn | None] | None:
        """The last message, and the reply to it if there is one; None if the message was deleted."""
        if not self.turns:
            return None
        last = self.turns[-1]
        if not last.answers:
            return last, None
        message = next((one for one in self.turns if one.id == last.answers), None)
        return None if message is None else (message, last)
