"""How likely words are after one another, whoever says them: what a recogniser half hears, it decides.

The recogniser's weights have read little: among "the first boss" and "the first goss" they choose by sound alone. Here
are three words at a time of everyday American English, from the wheel of an older recogniser that brings them along.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from coterie.base.errors import MissingExtra

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
