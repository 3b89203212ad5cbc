"""Locating quotes in a document."""

from __future__ import annotations

import random

import edlib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lib.quote_noise import NOISES, paragraphs
from coterie.modes.draft.diff import Span
from coterie.modes.draft.locate import Level, Match, MatchKind, NoMatch, _align, locate, normalise

LAMP = """# The lamp

The lamp has *burned* every night since the harbour
was built -- "and nobody", she wrote, "has ever asked
who lights it".

- Oil is brought in spring; see [the ledger](https://example.org/ledger_1).
- The keeper's `log_book` stays in the tower.

In winter the boats come late, and the keeper waits for them
with a second lamp, a kettle, and nothing to say. Nobody has
counted how many boats there were. She keeps the light anyway.
"""


def found(quote: str, within: Span | None = None) -> tuple[str, MatchKind]:
    match = locate(LAMP, quote, within)
    assert isinstance(match, Match), match
    return LAMP[match.span.start : match.span.end], match.how


def test_f6_exact_match() -> None:
    assert found("Oil is brought in spring") == ("Oil is brought in spring", "exact")


@pytest.mark.parametrize(
    "quote",
    [
        'The lamp has *burned* every night since the harbour was built -- "and nobody", she wrote',
        "The  lamp has *burned* every night\nsince the harbour was built — “and nobody”, she wrote",
    ],
)
def test_f6_white_space_quotes_and_dashes(quote: str) -> None:
    text, how = found(quote)
    assert how == "normalised"
    assert text == 'The lamp has *burned* every night since the harbour\nwas built -- "and nobody", she wrote'


def test_f6_markdown_markup_and_escapes() -> None:
    assert found("The lamp has burned every night") == ("The lamp has *burned* every night", "markup")
    assert found("The keeper's \\`log\\_book\\` stays") == ("The keeper's `log_book` stays", "markup")
    assert found("see the ledger.") == ("see [the ledger](https://example.org/ledger_1).", "markup")


def test_f6_the_span_has_a_bullet_if_the_quote_has_it() -> None:
    whole = "- The keeper's `log_book` stays in the tower."
    assert found("- The keeper's log_book stays in the tower.")[0] == whole
    assert found("The keeper's log_book stays in the tower.")[0] == whole[2:]


def test_f6_ellipsis() -> None:
    text, how = found("In winter the boats come late … She keeps the light anyway.")
    assert how == "ellipsis"
    assert text == LAMP[LAMP.index("In winter") :].rstrip("\n")
    assert found("In winter the boats [...] nothing to say.")[0].endswith("nothing to say.")


def test_f6_wrong_words() -> None:
    text, how = found(
        "At winter the ships come late, and the keeper waits for them with a second lamp and nothing to say."
    )
    assert how == "fuzzy"
    assert text.startswith("In winter the boats")
    assert text.endswith("nothing to say.")


def test_f6_ambiguous_or_absent() -> None:
    assert locate("a b a", "a") == NoMatch("ambiguous", 2)
    assert locate(LAMP, "An entirely different sentence about mountains and goats.") == NoMatch("absent")
    assert locate(LAMP, "  ") == NoMatch("absent")


def test_f6_similar_passages_are_ambiguous_unless_a_whole_word_differs() -> None:
    twins = "The first gate opens at dawn and shuts at dusk.\n\nThe second gate opens at dawn and shuts at dusk.\n"
    match = locate(twins, "The second gate opens at noon and shuts at dusk.")
    assert isinstance(match, Match)
    assert match.span.start == twins.index("The second")
    assert isinstance(locate(twins, "The other gate opens at noon and shuts at dusk."), NoMatch)


def test_f6_of_several_matches_the_one_within_the_context_is_chosen() -> None:
    text = "One lamp.\n\nOne lamp.\n"
    match = locate(text, "One lamp.", within=Span(11, 20))
    assert match == Match(Span(11, 20), "exact")


@given(st.text(alphabet="ab *_`[](\\)\n\t“’…-–#>", max_size=60), st.sampled_from(["typography", "markup"]))
def test_f6_normalised_characters_map_to_the_source(source: str, level: Level) -> None:
    text = normalise(source, level)
    assert len(text.text) == len(text.starts) == len(text.ends)
    assert all(0 <= start < end <= len(source) for start, end in zip(text.starts, text.ends, strict=True))
    assert list(text.starts) == sorted(text.starts)


@given(st.text(max_size=200), st.text(max_size=80))
def test_f6_any_text_gives_a_valid_span(document: str, quote: str) -> None:
    match = locate(document, quote)
    if isinstance(match, Match):
        assert 0 <= match.span.start < match.span.end <= len(document)


@given(st.integers(0, 10_000), st.sampled_from(sorted(NOISES)))
def test_f6_a_noisy_quote_never_matches_another_paragraph(seed: int, name: str) -> None:
    """On one text; `python -m bench.locate` measures it on real documents."""
    rng = random.Random(seed)
    paragraph = rng.choice([p for p in paragraphs(LAMP) if len(p.text.split()) > 20])
    match = locate(LAMP, NOISES[name](paragraph.text, rng, LAMP.split()))
    if isinstance(match, Match):
        assert match.span.overlaps(Span(paragraph.start, paragraph.end))


@given(st.text("ab c", min_size=1, max_size=50), st.text("ab c", min_size=1, max_size=16))
def test_law_the_first_best_match_is_the_one_that_edlib_finds_in_the_whole_text(text: str, wanted: str) -> None:
    limit = int(0.4 * len(wanted))
    whole = edlib.align(wanted.encode(), text.encode(), mode="HW", task="path", k=limit)
    found = _align(wanted.encode(), text.encode(), limit)
    if whole["editDistance"] < 0:
        assert found is None
    else:
        assert found == (whole["editDistance"], *whole["locations"][0], whole["cigar"])


def test_a_long_quote_is_not_searched_in_a_text_of_millions_of_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.modes.draft.locate._MAX_COMPARISONS", 1_000)
    assert locate("The lamp turns once more. " * 3, "The lamp turns twice or more.") == NoMatch("absent")
