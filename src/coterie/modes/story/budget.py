"""Fitting a prompt into a budget: what must be there stays, the rest shrinks in order, and everything says why. S13"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from coterie.base.errors import CoterieError

Tier = Literal["must", "should", "nice"]
MessageRole = Literal["system", "user", "assistant"]


class PromptTooLong(CoterieError):
    """What must be in the prompt does not fit the model at all."""


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt before it is sent. `order` is where it stands; `give_up` when it goes, low first."""

    name: str
    tier: Tier
    role: MessageRole
    text: str
    tokens: int
    order: tuple[int, float]
    drop_order: int = 0
    label: str = ""
    """What a person would call it, where its name does not say."""
    replacement: PromptPart | None = None
    """What takes its place when it goes; several pieces may share one."""

    @functools.cached_property
    def sha(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass
class FittedPrompt:
    parts: list[PromptPart]
    tokens: int
    trimmed: list[str] = field(default_factory=list)


def fit_to_budget(parts: Sequence[PromptPart], *, soft: int, hard: int) -> FittedPrompt:
    """Trim NICE until the soft budget holds, then SHOULD until the hard one does. MUST is never touched."""
    must = sum(piece.tokens for piece in parts if piece.tier == "must")
    if must > hard:
        raise _too_long([piece for piece in parts if piece.tier == "must"], must, hard)
    kept = {piece.name: piece for piece in parts}
    total = sum(piece.tokens for piece in kept.values())
    trimmed: list[str] = []
    # Where MUST alone is over the soft budget, what should be there may use the room up to the hard one.
    budgets: tuple[tuple[Tier, int], ...] = (("nice", soft), ("should", soft if must <= soft else hard))
    for tier, budget in budgets:
        going = sorted((p for p in kept.values() if p.tier == tier), key=lambda p: (p.drop_order, p.order))
        for piece in going:
            if total <= budget:
                break
            del kept[piece.name]
            total -= piece.tokens
            instead = piece.replacement
            if instead is not None and instead.name not in kept:
                kept[instead.name] = instead
                total += instead.tokens
            swap = f", {instead.name} instead" if instead is not None else ""
            trimmed.append(f"{piece.name} ({piece.tokens} tokens): over the budget of {budget}{swap}")
    return FittedPrompt(sorted(kept.values(), key=lambda piece: piece.order), total, trimmed)


def _too_long(must: Sequence[PromptPart], needed: int, hard: int) -> PromptTooLong:
    longest = sorted(must, key=lambda piece: -piece.tokens)[:2]
    named = " and ".join(f"{piece.label or piece.name} ({piece.tokens} tokens)" for piece in longest)
    return PromptTooLong(
        f"What has to be in the prompt needs {needed} tokens, and {hard} are allowed. The longest parts: {named}.",
        "Shorten them, or choose a model with a larger context in Settings → Models.",
    )
