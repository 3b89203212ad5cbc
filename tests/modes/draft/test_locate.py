"""Finding what a quote means. F6"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.lib.quote_noise import NOISES, paragraphs
from coterie.modes.draft.diff import Span
from coterie.modes.draft.locate import Level, Match, MatchKind, NoMatch, locate, normalise

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
    placing = locate(LAMP, quote, within)
    assert isinstance(placing, Match), placing
    return LAMP[placing.span.start : placing.span.end], placing.how


def test_f6_exactly_once() -> None:
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


def test_f6_markdown_signs_and_escapes() -> None:
    assert found("The lamp has burned every night") == ("The lamp has *burned* every night", "markup")
    assert found("The keeper's \\`log\\_book\\` stays") == ("The keeper's `log_book` stays", "markup")
    assert found("see the ledger.") == ("see [the ledger](https://example.org/ledger_1).", "markup")


def test_f6_a_bullet_belongs_to_the_span_when_the_quote_has_it() -> None:
    whole = "- The keeper's `log_book` stays in the tower."
    assert found("- The keeper's log_book stays in the tower.")[0] == whole
    assert found("The keeper's log_book stays in the tower.")[0] == whole[2:]


def test_f6_an_ellipsis_is_bridged() -> None:
    text, how = found("In winter the boats come late … She keeps the light anyway.")
    assert how == "ellipsis"
    assert text == LAMP[LAMP.index("In winter") :].rstrip("\n")
    assert found("In winter the boats [...] nothing to say.")[0].endswith("nothing to say.")


def test_f6_wrong_words_within_a_clear_lead() -> None:
    text, how = found(
        "At winter the ships come late, and the keeper waits for them with a second lamp and nothing to say."
    )
    assert how == "fuzzy"
    assert text.startswith("In winter the boats")
    assert text.endswith("nothing to say.")


def test_f6_too_often_or_not_at_all() -> None:
    assert locate("a b a", "a") == NoMatch("ambiguous", 2)
    assert locate(LAMP, "An entirely different sentence about mountains and goats.") == NoMatch("absent")
    assert locate(LAMP, "  ") == NoMatch("absent")


def test_f6_twins_are_ambiguous_unless_a_whole_word_tells_them_apart() -> None:
    twins = "The first gate opens at dawn and shuts at dusk.\n\nThe second gate opens at dawn and shuts at dusk.\n"
    placing = locate(twins, "The second gate opens at noon and shuts at dusk.")
    assert isinstance(placing, Match)
    assert placing.span.start == twins.index("The second")
    assert isinstance(locate(twins, "The other gate opens at noon and shuts at dusk."), NoMatch)


def test_f6_of_several_places_the_one_that_is_talked_about() -> None:
    text = "One lamp.\n\nOne lamp.\n"
    placing = locate(text, "One lamp.", within=Span(11, 20))
    assert placing == Match(Span(11, 20), "exact")


@given(st.text(alphabet="ab *_`[](\\)\n\t“’…-–#>", max_size=60), st.sampled_from(["typography", "markup"]))
def test_f6_every_character_knows_where_it_came_from(source: str, level: Level) -> None:
    text = normalise(source, level)
    assert len(text.text) == len(text.starts) == len(text.ends)
    assert all(0 <= start < end <= len(source) for start, end in zip(text.starts, text.ends, strict=True))
    assert list(text.starts) == sorted(text.starts)


@given(st.text(max_size=200), st.text(max_size=80))
def test_f6_no_text_can_break_it(document: str, quote: str) -> None:
    placing = locate(document, quote)
    if isinstance(placing, Match):
        assert 0 <= placing.span.start < placing.span.end <= len(document)


@given(st.integers(0, 10_000), st.sampled_from(sorted(NOISES)))
def test_f6_noise_never_leads_to_another_paragraph(seed: int, name: str) -> None:
    """On this text, whatever the seed; `python -m bench.locate` measures it on real ones."""
    chance = random.Random(seed)
    paragraph = chance.choice([p for p in paragraphs(LAMP) if len(p.text.split()) > 20])
    placing = locate(LAMP, NOISES[name](paragraph.text, chance, LAMP.split()))
    if isinstance(placing, Match):
        assert placing.span.overlaps(Span(paragraph.start, paragraph.end))
