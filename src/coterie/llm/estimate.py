"""How many tokens a text will be, where the model's own tokenizer is not at hand.

Texts are cut into runs of one script each, and each kind of run has a weight per family of tokenizers, fitted to real
vocabularies (cl100k, which Llama 3 grew from; o200k; tekken) over prose in 22 languages, Markdown, code and chat.
`python -m bench.tokens` measures the error: about 7 % on average for a paragraph, where bytes/4 is off by 14 to 18 %.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Weights:
    latin_word: float
    latin_letter: float
    latin_accent: float
    han: float
    kana: float
    hangul: float
    cyrillic_word: float
    greek: float
    arabic: float
    hebrew: float
    thai: float
    other_letter: float
    three_digits: float
    line: float
    gap: float
    marks: float
    mark: float
    symbol: float


CL100K = Weights(
    0.368,
    0.143,
    1.566,
    1.141,
    1.120,
    1.36,
    4.15,
    1.061,
    0.857,
    1.248,
    1.014,
    1.86,
    1.747,
    0.478,
    1.232,
    0.727,
    0.250,
    2.27,
)
O200K = Weights(
    0.411,
    0.132,
    0.574,
    0.609,
    0.876,
    0.81,
    2.472,
    0.419,
    0.384,
    0.578,
    0.541,
    0.506,
    1.909,
    0.687,
    1.173,
    0.650,
    0.258,
    1.62,
)
TEKKEN = Weights(
    0.446,
    0.152,
    0.516,
    0.838,
    0.595,
    0.63,
    2.701,
    0.462,
    0.364,
    0.635,
    0.659,
    0.561,
    2.278,
    1.574,
    1.216,
    0.340,
    0.266,
    3.53,
)

_FAMILIES: tuple[tuple[re.Pattern[str], Weights], ...] = (
    (re.compile(r"mi[sx]tral|nemo|magistral|devstral|pixtral", re.IGNORECASE), TEKKEN),
    (re.compile(r"gpt-4o|gpt-4\.1|gpt-[5-9]|gpt-oss|\bo[1-9]\b|gemma|gemini", re.IGNORECASE), O200K),
)

_RUNS = re.compile(
    r"""
      (?P<latin>[A-Za-zÀ-ɏͰͱḀ-ỿ][A-Za-zÀ-ɏ̀-ͯḀ-ỿ]*)
    | (?P<han>[㐀-䶿一-鿿豈-﫿々]+)
    | (?P<kana>[぀-ヿㇰ-ㇿ]+)
    | (?P<hangul>[가-힯ᄀ-ᇿ]+)
    | (?P<cyrillic>[Ѐ-ԯ][Ѐ-ԯ̀-ͯ]*)
    | (?P<greek>[Ͱ-Ͽἀ-῿]+)
    | (?P<arabic>[؀-ۿݐ-ݿ]+)
    | (?P<hebrew>[֐-׿]+)
    | (?P<thai>[฀-๿]+)
    | (?P<digits>\d+)
    | (?P<line>\s*\n\s*)
    | (?P<gap>\s\s+)
    | (?P<blank>\s)
    | (?P<marks>[\x21-\x7e]+)
    | (?P<letter>[^\W_])
    | (?P<symbol>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def weights_for(model: str) -> Weights:
    """By the model's family where its name tells; otherwise the one that counts most, to stay on the safe side."""
    return next((weights for pattern, weights in _FAMILIES if pattern.search(model)), CL100K)


@lru_cache(maxsize=4096)
def estimate(text: str, weights: Weights = CL100K) -> int:
    total = 0.0
    for run in _RUNS.finditer(text):
        kind, length = run.lastgroup, run.end() - run.start()
        if kind == "blank":
            continue
        if kind == "latin":
            word = run.group()
            total += weights.latin_word + weights.latin_letter * length
            if not word.isascii():
                total += weights.latin_accent * sum(letter > "\x7f" for letter in word)
        elif kind == "marks":
            total += weights.marks + weights.mark * length
        elif kind == "digits":
            total += weights.three_digits * -(-length // 3)
        elif kind == "cyrillic":
            total += weights.cyrillic_word
        elif kind in ("line", "gap"):
            total += weights.line if kind == "line" else weights.gap
        elif kind == "letter":
            total += weights.other_letter
        else:
            total += length * float(getattr(weights, kind or "symbol"))
    return max(1, round(total)) if text else 0
