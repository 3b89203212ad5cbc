"""Fitting prompts into their budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.story.events import Tier
from coterie.modes.story.prompt_budget import PromptPart, PromptTooLong, fit_to_budget

TIERS: list[Tier] = ["must", "should", "nice"]

SUMMARY = PromptPart("summary", "should", "system", "In short.", 20, (0, 900), 7)


@st.composite
def desks(draw: st.DrawFn) -> list[PromptPart]:
    """Any parts; some older turns have a summary that replaces them."""
    pieces = []
    for number in range(draw(st.integers(0, 25))):
        tier = draw(st.sampled_from(TIERS))
        turn = tier == "nice" and draw(st.booleans())
        pieces.append(
            PromptPart(
                f"turn {number}" if turn else f"part {number}",
                tier,
                "user",
                f"Text {number}.",
                draw(st.integers(0, 120)),
                (1 if turn else 0, number),
                0 if turn else draw(st.integers(1, 10)),
                replacement=SUMMARY if turn and draw(st.booleans()) else None,
            )
        )
    return pieces


@given(desks(), st.integers(0, 1_500), st.integers(0, 500))
def test_s13_the_hard_budget_holds_and_must_parts_stay(pieces: list[PromptPart], soft: int, more: int) -> None:
    hard = soft + more
    must = [piece for piece in pieces if piece.tier == "must"]
    needed = sum(piece.tokens for piece in must)
    if needed > hard:
        with pytest.raises(PromptTooLong) as error:
            fit_to_budget(pieces, soft=soft, hard=hard)
        longest = max(must, key=lambda piece: piece.tokens)
        assert str(needed) in error.value.what
        assert f"({longest.tokens} tokens)" in error.value.what
        return
    fitted = fit_to_budget(pieces, soft=soft, hard=hard)
    assert fitted.tokens <= hard
    assert fitted.tokens == sum(piece.tokens for piece in fitted.parts)
    assert set(must) <= set(fitted.parts)
    assert fitted.tokens <= max(soft, needed) or needed > soft
    assert [piece.order for piece in fitted.parts] == sorted(piece.order for piece in fitted.parts)


@given(desks(), st.integers(0, 1_500), st.integers(0, 500))
def test_s13_nice_parts_are_dropped_before_should_and_only_as_needed(
    pieces: list[PromptPart], soft: int, more: int
) -> None:
    hard = soft + more
    if sum(piece.tokens for piece in pieces if piece.tier == "must") > hard:
        return
    fitted = fit_to_budget(pieces, soft=soft, hard=hard)
    given_parts = {piece.name: piece for piece in [*pieces, SUMMARY]}
    gone = [given_parts[line.partition(" (")[0]] for line in fitted.trimmed]
    assert {piece.name for piece in pieces} - {p.name for p in fitted.parts} == {p.name for p in gone} - {"summary"}
    tiers = [piece.tier for piece in gone]
    assert tiers == sorted(tiers)  # nice, then should
    if "should" in tiers:
        assert not [piece for piece in fitted.parts if piece.tier == "nice"]
    for tier in ("nice", "should"):
        ranks = [piece.drop_order for piece in gone if piece.tier == tier]
        assert ranks == sorted(ranks)
    if sum(piece.tokens for piece in pieces) <= soft:
        assert not gone
    if gone:  # with the last dropped part, it did not fit
        budget = int(fitted.trimmed[-1].partition("budget of ")[2].partition(",")[0])
        without = fitted.tokens + gone[-1].tokens
        if gone[-1].replacement is None:
            assert without > budget
    if any(piece.replacement is SUMMARY for piece in gone):
        kept = {piece.name for piece in fitted.parts} | {piece.name for piece in gone}
        assert "summary" in kept
