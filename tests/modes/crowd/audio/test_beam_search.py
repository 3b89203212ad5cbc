"""C9: beam search on invented probabilities."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.crowd.audio.moonshine import Hypothesis, LogProbabilities, Step, beam_search

END = 0
_VOCABULARY = 8


def chances(**likely: float) -> LogProbabilities:
    """Of token `t1`, `t2` and so on; all others share what is left."""
    left = (1 - sum(likely.values())) / (_VOCABULARY - len(likely))
    distribution = np.full(_VOCABULARY, left, np.float32)
    for name, chance in likely.items():
        distribution[int(name[1:])] = chance
    return np.log(distribution)


def likeliest(first: LogProbabilities, step: Step, *, most: int, width: int) -> Hypothesis:
    return max(beam_search(first, step, end=END, max_tokens=most, width=width), key=Hypothesis.score)


class Model:
    """What follows a beginning, by its tokens."""

    def __init__(self, follows: dict[tuple[int, ...], LogProbabilities]) -> None:
        self.follows = follows
        self.beginnings: list[tuple[int, ...]] = [()]

    def step(self, places: list[int], tokens: list[int]) -> LogProbabilities:
        self.beginnings = [(*self.beginnings[place], token) for place, token in zip(places, tokens, strict=True)]
        return np.stack([self.follows.get(each, chances(t0=0.9)) for each in self.beginnings])


def test_c9_a_better_prefix_loses_if_its_continuations_are_unlikely() -> None:
    first = chances(t1=0.5, t2=0.4)
    follows: dict[tuple[int, ...], LogProbabilities] = {
        (1,): chances(t3=0.15, t4=0.15, t5=0.15, t6=0.15),
        (2,): chances(t7=0.95),
    }
    model = Model(follows)
    assert likeliest(first, model.step, most=10, width=4).tokens == (2, 7)
    greedy = Model(follows)
    assert likeliest(first, greedy.step, most=10, width=1).tokens[0] == 1


def test_c9_a_text_without_an_end_is_cut_and_ranks_low() -> None:
    class Repeats(Model):
        def step(self, places: list[int], tokens: list[int]) -> LogProbabilities:
            super().step(places, tokens)
            return np.stack([chances(t5=0.8, t0=0.00001) for _ in self.beginnings])

    endless = likeliest(chances(t5=0.8, t0=0.00001), Repeats({}).step, most=12, width=1)
    assert endless.tokens == (5,) * 12
    ends = likeliest(chances(t5=0.8), Model({}).step, most=12, width=1)
    assert endless.score() < ends.score()


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6))
def test_c9_hypotheses_respect_the_length_limit_and_probability_bounds(seed: int, width: int, most: int) -> None:
    chance = np.random.default_rng(seed)

    def follow(count: int) -> LogProbabilities:
        drawn = chance.dirichlet(np.ones(_VOCABULARY), count).astype(np.float32)
        logs: LogProbabilities = np.log(drawn + np.float32(1e-9))
        return logs

    hypotheses = beam_search(follow(1)[0], lambda places, _: follow(len(places)), end=END, max_tokens=most, width=width)
    assert hypotheses
    for each in hypotheses:
        assert len(each.tokens) <= most
        assert END not in each.tokens
        assert each.score() <= 1e-5


def test_c9_an_extra_score_can_outweigh_the_acoustic_score() -> None:
    sounds, reads = Hypothesis((1, 2), -1.0), Hypothesis((1, 3), -1.4)
    assert sounds.score() > reads.score()
    assert sounds.score(-3.0) < reads.score(-1.0)
