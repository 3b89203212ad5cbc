"""Fitting a prompt into a budget: what must be there stays, the rest shrinks in order, and everything says why. S13"""

from __future__ import annotations

import functools
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
    order: tuple[int, float]
    give_up: int = 0
    label: str = ""
    """What a person would call it, where its name does not say."""
    instead: Piece | None = None
    """What takes its place when it goes; several pieces may share one."""

    @functools.cached_property
    def sha(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass
class Fitted:
    pieces: list[Piece]
    tokens: int
    trimmed: list[str] = field(default_factory=list)


def fit(pieces: Sequence[Piece], *, soft: int, hard: int) -> Fitted:
    """Trim NICE until the soft budget holds, then SHOULD until the hard one does. MUST is never touched."""
    must = sum(piece.tokens for piece in pieces if piece.tier == "must")
    if must > hard:
        raise _too_long([piece for piece in pieces if piece.tier == "must"], must, hard)
    kept = {piece.name: piece for piece in pieces}
    total = sum(piece.tokens for piece in kept.values())
    trimmed: list[str] = []
    # Where MUST alone is over the soft budget, what should be there may use the room up to the hard one.
    budgets: tuple[tuple[Tier, int], ...] = (("nice", soft), ("should", soft if must <= soft else hard))
    for tier, budget in budgets:
        going = sorted((p for p in kept.values() if p.tier == tier), key=lambda p: (p.give_up, p.order))
        for piece in going:
            if total <= budget:
                break
            del kept[piece.name]
            total -= piece.tokens
            instead = piece.instead
            if instead is not None and instead.name not in kept:
                kept[instead.name] = instead
                total += instead.tokens
            swap = f", {instead.name} instead" if instead is not None else ""
            trimmed.append(f"{piece.name} ({piece.tokens} tokens): over the budget of {budget}{swap}")
    return Fitted(sorted(kept.values(), key=lambda piece: piece.order), total, trimmed)


def _too_long(must: Sequence[Piece], needed: int, hard: int) -> PromptTooLong:
    longest = sorted(must, key=lambda piece: -piece.tokens)[:2]
    named = " and ".join(f"{piece.label or piece.name} ({piece.tokens} tokens)" for piece in longest)
    return PromptTooLong(
        f"What has to be in the prompt needs {needed} tokens, and {hard} are allowed. The longest parts: {named}.",
        "Shorten them, or choose a model with a larger context in Settings → Models.",
    )
