"""C9: a word that is expected wins where it was half heard, and not where something else was said."""

from __future__ import annotations

import numpy as np

from coterie.modes.crowd.audio.moonshine import Hypothesis, LogProbabilities, WordBoost, beam_search

END = 0
TOKENS = [b"", "▁Ch".encode(), b"et", b"at", "▁chat".encode(), "▁check".encode(), "▁that".encode(), b"ting"]
CH, ET, AT, CHAT, CHECK, THAT = 1, 2, 3, 4, 5, 6


def chances(**likely: float) -> LogProbabilities:
    left = (1 - sum(likely.values())) / (len(TOKENS) - len(likely))
    found = np.full(len(TOKENS), left, np.float32)
    for name, chance in likely.items():
        found[int(name[1:])] = chance
    return np.log(found)


def heard(
    first: LogProbabilities, after_ch: LogProbabilities | None = None, *, words: tuple[str, ...] = ("chat",)
) -> str:
    beginnings: list[tuple[int, ...]] = [()]

    def step(places: list[int], tokens: list[int]) -> LogProbabilities:
        beginnings[:] = [(*beginnings[place], token) for place, token in zip(places, tokens, strict=True)]
        return np.stack(
            [after_ch if after_ch is not None and each == (CH,) else chances(t0=0.9) for each in beginnings]
        )

    bonus = WordBoost(words, TOKENS).bonus
    found = max(beam_search(first, step, end=END, max_tokens=4, width=3, bonus=bonus), key=Hypothesis.score)
    return b"".join(TOKENS[token] for token in found.tokens).decode().replace("▁", "")


def test_c9_an_expected_word_wins_where_it_was_half_heard() -> None:
    assert heard(chances(t5=0.6, t4=0.3), words=()) == "check"
    assert heard(chances(t5=0.6, t4=0.3)) == "chat"


def test_c9_an_expected_word_wins_in_pieces_too() -> None:
    assert heard(chances(t1=0.9), chances(t2=0.7, t3=0.2), words=()) == "Chet"
    assert heard(chances(t1=0.9), chances(t2=0.7, t3=0.2)) == "Chat"


def test_c9_what_was_clearly_said_is_not_bent_to_the_expected() -> None:
    assert heard(chances(t6=0.97, t4=0.005)) == "that"


def test_c9_only_the_last_piece_of_an_expected_word_is_made_likelier() -> None:
    expected = WordBoost(["chat"], TOKENS)
    assert set(expected.bonus(())) == {CHAT}
    assert set(expected.bonus((THAT,))) == {CHAT}
    assert set(expected.bonus((THAT, CH))) == {CHAT, AT}
    assert set(expected.bonus((CH, ET))) == {CHAT}
    assert set(expected.bonus((CH, AT))) == {CHAT}


def test_c9_nothing_is_expected_where_no_word_is_named() -> None:
    assert not WordBoost([], TOKENS).bonus((CH,))
    assert not WordBoost(["unspellable"], TOKENS).bonus(())


def test_c9_what_may_begin_is_left_as_it_was_given() -> None:
    first = chances(t5=0.6, t4=0.3)
    before = first.copy()
    heard(first)
    assert (first == before).all()
