"""When a growing message is edited. P5, D14"""

from __future__ import annotations

from coterie.engine.pacing import Pace, Pacer

DISCORD = Pace(least_s=0.2, most_s=1.5, rest_s=0.5, growth=1.0)


def test_d14_a_text_that_rests_is_shown_after_the_rest_and_one_that_grows_after_the_most() -> None:
    pacer = Pacer(DISCORD, 10.0)
    assert pacer.due() == 10.5
    pacer.grew(10.4)
    assert pacer.due() == 10.9
    pacer.grew(11.4)
    assert pacer.due() == 11.5, "however long it goes on growing"


def test_d14_two_edits_are_never_closer_than_the_least() -> None:
    pacer = Pacer(DISCORD, 0.0)
    pacer.edited(5.0)
    assert pacer.due() == 5.2


def test_p4_the_platforms_patience_counts_more() -> None:
    pacer = Pacer(DISCORD, 0.0)
    pacer.rest(30.0)
    pacer.rest(20.0)
    assert pacer.due() == 30.0


def test_p5_twenty_thousand_characters_take_at_most_thirty_edits() -> None:
    pace, now, edits = Pace(), 0.0, 0
    pacer = Pacer(pace, now)
    while (due := pacer.due()) is not None and due < 20_000 / 20:  # twenty characters a second, for ever
        now = due
        pacer.grew(now)
        pacer.edited(now)
        edits += 1
    assert edits == 30
