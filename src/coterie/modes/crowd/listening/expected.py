"""Words that are expected: a recogniser that learnt from audio books hears Chet where a streamer says chat.

Whatever would complete such a word is made likelier while its words are still being searched for, where the sound can
yet speak against it. Words put right afterwards are too late: by then the search may have left the word out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
