"""Beam search: likely words, found by following a few beginnings at once and not only the best one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_LENGTH = 0.6
"""How far longer texts are forgiven that more words are less likely together."""

LogChances = npt.NDArray[np.float32]
Step = Callable[[list[int], list[int]], LogChances]
"""Goes on with these beginnings (by their places in the step before) by these tokens; what may follow each."""
Bonus = Callable[[tuple[int, ...]], Mapping[int, float]]
"""How much likelier than the model thinks some tokens are after a beginning."""


@dataclass(frozen=True)
class Found:
    tokens: tuple[int, ...]
    chance: float
    """The logarithm of it."""
    ended: bool = True

    def score(self, more: float = 0.0) -> float:
        """Comparable between texts of different lengths, and between hearings of the same words. `more` is what else
        speaks for them, as a logarithm."""
        # What never comes to an end repeats itself, and is worth less than anything that does.
        return (self.chance + more) / ((len(self.tokens) + 1) ** _LENGTH if self.ended else 1)


@dataclass(frozen=True)
class _Beginning:
    tokens: tuple[int, ...]
    chance: float


def searched(
    first: LogChances, step: Step, *, end: int, most: int, width: int, bonus: Bonus = lambda _: {}
) -> list[Found]:
    """Likely tokens until `end`, at most `most`; `first` is what may begin."""
    beginnings = [_Beginning((), 0.0)]
    chances = first.reshape(1, -1).copy()
    found: list[Found] = []
    for length in range(1, most + 1):
        longer: list[tuple[float, int, int]] = []
        for place, beginning in enumerate(beginnings):
            for token, more in bonus(beginning.tokens).items():
                chances[place, token] += more
            likely = np.argpartition(-chances[place], width + 1)[: width + 1]
            longer += [(beginning.chance + float(chances[place, token]), place, int(token)) for token in likely]
        alive: list[tuple[float, int, int]] = []
        for chance, place, token in sorted(longer, reverse=True):
            if token == end:
                found.append(Found(beginnings[place].tokens, chance))
            else:
                alive.append((chance, place, token))
            if len(alive) == width:
                break
        if len(found) >= width and max(each.score() for each in found) >= alive[0][0] / length**_LENGTH:
            break
        beginnings = [_Beginning((*beginnings[place].tokens, token), chance) for chance, place, token in alive]
        chances = step([place for _, place, _ in alive], [token for _, _, token in alive])
    return found or [Found(beginnings[0].tokens, beginnings[0].chance, ended=False)]
