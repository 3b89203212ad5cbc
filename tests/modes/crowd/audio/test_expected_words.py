"""C9: an expected word wins if the audio is unclear, and not if another word was said clearly."""

from __future__ import annotations

import numpy as np

from coterie.modes.crowd.audio.moonshine import Hypothesis, LogProbabilities, WordBoost, beam_search

END = 0
TOKENS = [b"", "▁Ch".encode(), b"et", b"at", "▁chat".encode(), "▁check".encode(), "▁that".encode(), b"ting"]
CH, ET, AT, CHAT, CHECK, THAT = 1, 2, 3, 4, 5, 6


def chances(**likely: float) -> LogProbabilities:
    left = (1 - sum(likely.values())) / (len(TOKENS) - len(likely))
    distribution = np.full(len(TOKENS), left, np.float32)
    for name, chance in likely.items():
        distribution[int(name[1:])] = chance
    return np.log(distribution)


def best_text(
    first: LogProbabilities, after_ch: LogProbabilities | None = None, *, words: tuple[str, ...] = ("chat",)
) -> str:
    beginnings: list[tuple[int, ...]] = [()]

    def step(places: list[int], tokens: list[int]) -> LogProbabilities:
        beginnings[:] = [(*beginnings[place], token) for place, token in zip(places, tokens, strict=True)]
        return np.stack(
            [after_ch if after_ch is not None and each == (CH,) else chances(t0=0.9) for each in beginnings]
        )

    bonus = WordBoost(words, TOKENS).bonus
    best = max(beam_search(first, step, end=END, max_tokens=4, width=3, bonus=bonus), key=Hypothesis.score)
    return b"".join(TOKENS[token] for token in best.tokens).decode().replace("▁", "")


def test_c9_an_expected_word_wins_if_the_audio_is_unclear() -> None:
    assert best_text(chances(t5=0.6, t4=0.3), words=()) == "check"
    assert best_text(chances(t5=0.6, t4=0.3)) == "chat"


def test_c9_an_expected_word_of_several_tokens_wins() -> None:
    assert best_text(chances(t1=0.9), chances(t2=0.7, t3=0.2), words=()) == "Chet"
    assert best_text(chances(t1=0.9), chances(t2=0.7, t3=0.2)) == "Chat"


def test_c9_a_clear_word_is_not_replaced_by_an_expected_one() -> None:
    assert best_text(chances(t6=0.97, t4=0.005)) == "that"


def test_c9_only_the_completing_token_gets_the_bonus() -> None:
    expected = WordBoost(["chat"], TOKENS)
    assert set(expected.bonus(())) == {CHAT}
    assert set(expected.bonus((THAT,))) == {CHAT}
    assert set(expected.bonus((THAT, CH))) == {CHAT, AT}
    assert set(expected.bonus((CH, ET))) == {CHAT}
    assert set(expected.bonus((CH, AT))) == {CHAT}


def test_c9_without_expected_words_there_is_no_bonus() -> None:
    assert not WordBoost([], TOKENS).bonus((CH,))
    assert not WordBoost(["unspellable"], TOKENS).bonus(())


def test_c9_the_first_distribution_is_not_modified() -> None:
    first = chances(t5=0.6, t4=0.3)
    before = first.copy()
    best_text(first)
    assert (first == before).all()
