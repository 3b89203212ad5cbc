"""Beam search: likely words, found by following a few beginnings at once and not only the best one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_LENGTH_PENALTY = 0.6
"""How far longer texts are forgiven that more words are less likely together."""

LogProbabilities = npt.NDArray[np.float32]
Step = Callable[[list[int], list[int]], LogProbabilities]
"""Goes on with these beginnings (by their places in the step before) by these tokens; what may follow each."""
Bonus = Callable[[tuple[int, ...]], Mapping[int, float]]
"""How much likelier than the model thinks some tokens are after a beginning."""


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]
    log_probability: float
    """The logarithm of it."""
    ended: bool = True

    def score(self, extra: float = 0.0) -> float:
        """Comparable between texts of different lengths, and between hearings of the same words. `more` is what else
        speaks for them, as a logarithm."""
        # What never comes to an end repeats itself, and is worth less than anything that does.
        return (self.log_probability + extra) / ((len(self.tokens) + 1) ** _LENGTH_PENALTY if self.ended else 1)


@dataclass(frozen=True)
class _Prefix:
    tokens: tuple[int, ...]
    log_probability: float


def beam_search(
    first: LogProbabilities, step: Step, *, end: int, max_tokens: int, width: int, bonus: Bonus = lambda _: {}
) -> list[Hypothesis]:
    """Likely tokens until `end`, at most `most`; `first` is what may begin."""
    beginnings = [_Prefix((), 0.0)]
    chances = first.reshape(1, -1).copy()
    found: list[Hypothesis] = []
    for length in range(1, max_tokens + 1):
        longer: list[tuple[float, int, int]] = []
        for place, beginning in enumerate(beginnings):
            for token, more in bonus(beginning.tokens).items():
                chances[place, token] += more
            likely = np.argpartition(-chances[place], width + 1)[: width + 1]
            longer += [
                (beginning.log_probability + float(chances[place, token]), place, int(token)) for token in likely
            ]
        alive: list[tuple[float, int, int]] = []
        for chance, place, token in sorted(longer, reverse=True):
            if token == end:
                found.append(Hypothesis(beginnings[place].tokens, chance))
            else:
                alive.append((chance, place, token))
            if len(alive) == width:
                break
        if len(found) >= width and max(each.score() for each in found) >= alive[0][0] / length**_LENGTH_PENALTY:
            break
        beginnings = [_Prefix((*beginnings[place].tokens, token), chance) for chance, place, token in alive]
        chances = step([place for _, place, _ in alive], [token for _, _, token in alive])
    return found or [Hypothesis(beginnings[0].tokens, beginnings[0].log_probability, ended=False)]
