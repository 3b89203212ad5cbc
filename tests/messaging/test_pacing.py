"""When a streamed message is edited."""

from __future__ import annotations

from coterie.messaging.ports import EditPace, EditPacer

DISCORD = EditPace(min_interval_s=0.2, max_interval_s=1.5, idle_s=0.5, growth=1.0)


def test_d14_an_idle_text_is_edited_after_idle_s_and_a_growing_one_after_max_interval_s() -> None:
    pacer = EditPacer(DISCORD, 10.0)
    assert pacer.next_edit_at() == 10.5
    pacer.text_changed(10.4)
    assert pacer.next_edit_at() == 10.9
    pacer.text_changed(11.4)
    assert pacer.next_edit_at() == 11.5, "however long it goes on growing"


def test_d14_edits_keep_the_minimum_interval() -> None:
    pacer = EditPacer(DISCORD, 0.0)
    pacer.edited(5.0)
    assert pacer.next_edit_at() == 5.2


def test_p4_the_platforms_rate_limit_takes_precedence() -> None:
    pacer = EditPacer(DISCORD, 0.0)
    pacer.pause_until(30.0)
    pacer.pause_until(20.0)
    assert pacer.next_edit_at() == 30.0


def test_p5_twenty_thousand_characters_take_at_most_thirty_edits() -> None:
    pace, now, edits = EditPace(), 0.0, 0
    pacer = EditPacer(pace, now)
    while (due := pacer.next_edit_at()) is not None and due < 20_000 / 20:  # twenty characters a second, for ever
        now = due
        pacer.text_changed(now)
        pacer.edited(now)
        edits += 1
    assert edits == 30
