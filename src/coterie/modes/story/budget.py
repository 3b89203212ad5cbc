"""Fitting a prompt into a budget: what must be there stays, the rest shrinks in order, and everything says why. S13"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from coterie.base.errors import CoterieError

Tier = Literal["must", "should", "nice"]
Role = Literal["system", "user", "assistant"]


class PromptTooLong(CoterieError):
    """What must be in the prompt does not fit the model at all."""


@dataclass(frozen=True)
class Piece:
    """A part of a prompt before it is sent. `order` is where it stands; `give_up` when it goes, low first."""

    name: str
    tier: Tier
    role: Role
    text: str
    tokens: int
    order: tuple[int, int]
    give_up: int = 0
    instead: Piece | None = None
    """What takes its place when it goes."""

    @property
    def sha(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


@dataclass
class Fitted:
    pieces: list[Piece]
    tokens: int
    trimmed: list[str] = field(default_factory=list)


def fit(pieces: Sequence[Piece], *, soft: int, hard: int) -> Fitted:
    """Trim NICE until the soft budget holds, then SHOULD until the hard one does. MUST is never touched."""
    must = sum(piece.tokens for piece in pieces if piece.tier == "must")
    if must > hard:
        longest = sorted((p for p in pieces if p.tier == "must"), key=lambda p: -p.tokens)[:2]
        named = " and ".join(f"{piece.name} ({piece.tokens} tokens)" for piece in longest)
        raise PromptTooLong(
            f"What has to be in the prompt needs {must} tokens, and {hard} are allowed. The longest parts: {named}.",
            "Shorten them, or choose a model with a larger context in Settings → Models.",
        )
    kept = list(pieces)
    trimmed: list[str] = []
    # Where MUST alone is over the soft budget, what should be there may use the room up to the hard one.
    budgets: tuple[tuple[Tier, int], ...] = (("nice", soft), ("should", soft if must <= soft else hard))
    for tier, budget in budgets:
        for piece in sorted((p for p in kept if p.tier == tier), key=lambda p: (p.give_up, p.order)):
            if _total(kept) <= budget:
                break
            kept = _without(kept, piece)
            swap = f", {piece.instead.name} instead" if piece.instead in kept else ""
            trimmed.append(f"{piece.name} ({piece.tokens} tokens): over the budget of {budget}{swap}")
    kept.sort(key=lambda piece: piece.order)
    return Fitted(kept, _total(kept), trimmed)


def _without(kept: list[Piece], piece: Piece) -> list[Piece]:
    left = [other for other in kept if other is not piece]
    replacement = piece.instead
    if replacement is not None and replacement not in left and replacement.tokens < piece.tokens:
        left.append(replacement)
    return left


def _total(pieces: Sequence[Piece]) -> int:
    return sum(piece.tokens for piece in pieces)
