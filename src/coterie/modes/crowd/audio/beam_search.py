"""Beam search: likely words, found by following a few beginnings at once and not only the best one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.base.errors import MissingExtra

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


# Words that are expected: a recogniser that learnt from audio books hears Chet where a streamer says chat.
#
# Whatever would complete such a word is made likelier while its words are still being searched for, where the sound can
# yet speak against it. Words put right afterwards are too late: by then the search may have left the word out.


_BONUS = 2.5
"""Added to the logarithm of its chance: enough for a word that was heard half, too little for one that was not."""
WORD_START = "▁"
"""What a token begins with where a word begins."""


class WordBoost:
    def __init__(self, words: Iterable[str], tokens: Sequence[bytes]) -> None:
        self._texts = [token.decode("utf-8", "ignore") for token in tokens]
        numbers = {text: number for number, text in enumerate(self._texts)}
        self._completions: dict[str, dict[int, float]] = {"": {}}
        for written in {form for word in words for form in (word, word.capitalize())}:
            form = WORD_START + written
            for start in range(len(form)):
                if (number := numbers.get(form[start:])) is not None:
                    self._completions.setdefault(form[:start], {})[number] = _BONUS

    def bonus(self, beginning: Sequence[int]) -> Mapping[int, float]:
        """Tokens that complete an expected word after this beginning, and how much likelier each is."""
        return self._completions[""] | self._completions.get(self._last_word(beginning), {})

    def _last_word(self, beginning: Sequence[int]) -> str:
        word = ""
        for token in reversed(beginning):
            word = self._texts[token] + word
            if word.startswith(WORD_START):
                break
        return word


# How likely words are after one another, whoever says them: what a recogniser half hears, it decides.
#
# The recogniser's weights have read little: among "the first boss" and "the first goss" they choose by sound alone. Here
# are three words at a time of everyday American English, from the wheel of an older recogniser that brings them along.


_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_SENTENCE_START, _SENTENCE_END = "<s>", "</s>"
_HISTORY = 2
_MIN_LOG_PROBABILITY = -18.0
"""A name that nobody wrote down is no worse than the rarest word."""


class LanguageModelPrior:
    def __init__(self) -> None:
        try:
            import pocketsphinx
        except ImportError:
            raise MissingExtra("audio", "Understanding what a stream says") from None
        model = Path(pocketsphinx.get_model_path("en-us")) / "en-us.lm.bin"
        self._log_math: Any = pocketsphinx.LogMath()
        self._ngrams: Any = pocketsphinx.NGramModel(pocketsphinx.Config(), self._log_math, str(model))

    def log_probability(self, text: str) -> float:
        """Of these words together, as a sentence of their own. Capitals and marks do not count."""
        words = [_SENTENCE_START, *_WORD.findall(text.casefold().replace("’", "'")), _SENTENCE_END]
        return sum(self._conditional(words[max(0, at - _HISTORY) : at + 1]) for at in range(1, len(words)))

    def _conditional(self, words: list[str]) -> float:
        """The last of them, after the others."""
        return max(float(self._log_math.log_to_ln(self._ngrams.prob(words[::-1]))), _MIN_LOG_PROBABILITY)
