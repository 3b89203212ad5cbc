"""Estimates about an exchange without a model: feelings and significance.

They are for models too small for structured analysis; `bench.demo_analysis` compares both on labelled exchanges.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_AFFINITY_STEP, _TRUST_STEP = 3, 2
_TRIVIAL_WORDS = 2


@dataclass(frozen=True)
class ExchangeEstimate:
    affinity_delta: int
    trust_delta: int
    significance: Literal[0, 1, 2, 3]


def estimate_exchange(message: str) -> ExchangeEstimate:
    """What a person's message changes for the character it is addressed to."""
    hostile, warm = bool(_HOSTILE.search(message)), bool(_WARM.search(message))
    breach, confides = bool(_BREACH.search(message)), bool(_CONFIDES.search(message))
    grave = bool(_GRAVE.search(message))
    affinity = -1 if hostile or breach else int(warm or (grave and bool(_LOSS.search(message))))
    trust = -1 if breach else int(confides)
    significance: Literal[0, 1, 2, 3] = 1
    if _LIFE_CHANGING.search(message):
        significance = 3
    elif grave or (breach and not _GESTURE.search(message)) or _SECRET.search(message):
        significance = 2
    elif (len(message.split()) <= _TRIVIAL_WORDS and not (hostile or warm)) or _TRIVIAL.search(message):
        significance = 0
    return ExchangeEstimate(affinity * _AFFINITY_STEP, trust * _TRUST_STEP, significance)


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(phrases)})\b", re.IGNORECASE)


_WARM = _any(
    r"thank(?:s| you)",
    "kind of you",
    "i love",
    r"i (?:really )?like you",
    r"hugs?",
    "kiss",
    "i brought you",
    r"sorry",
    r"(?:can|let me|may) i help",
    "help you",
    r"beautiful",
    r"you(?:['’]re| are) (?:right|kind|sweet|wonderful|great)",
    "you were right",
    "you saved",
    "i trust you",
    r"(?:i am|i['’]m) glad",
    "miss(?:ed)? you",
    "for you",
    "marry me",
    "delicious",
    "handsome",
    "takes? your hand",
)
_HOSTILE = _any(
    "stupid",
    "idiot",
    r"ugly",
    "boring",
    "hate",
    "shut up",
    "leave me alone",
    r"i (?:don['’]?t|do not) trust",
    r"liar",
    "i wish i had never",
    r"(?:i(?:['’]ll| will) )(?:burn|kill|break|destroy|hurt|switch you off)",
    "terrible",
    r"throws? .*",
    r"slaps?",
    r"hits? you",
    "worthless",
    "disgusting",
    "pathetic",
)
_BREACH = _any(
    r"i lied",
    "i stole",
    r"i (?:don['’]?t|do not) trust",
    "i hate you",
    r"i(?:['’]ll| will) (?:burn|kill|break|destroy)",
    r"throws? .*",
    "i betrayed",
    r"(?:stupid|worthless) (?:old )?(?:woman|man|machine|thing)",
)
_GESTURE = re.compile(r"\*")
_CONFIDES = _any(
    "i promise",
    r"never told (?:anyone|anybody)",
    "secret",
    r"i trust you",
    r"died",
    "pregnant",
    "to live",
    "you were right",
    "you saved my life",
    "i confess",
    "funeral",
    "cancer",
    "the truth is",
)
_SECRET = _any("i promise", r"never told (?:anyone|anybody)", r"(?:my|a) secret", "i trust you", "i confess")
_LOSS = _any("died", "death", "funeral", "lost my", r"(?:a|one) (?:year|month)s? to live", "cancer")
_GRAVE = _any("died", "dead", "death", "funeral", "lost my", "to live", "cancer", "war", "i hate you", "betrayed")
_LIFE_CHANGING = _any(
    "i love you",
    "marry",
    "pregnant",
    r"(?:year|years|months?|weeks?|days?) to live",
    "was born",
    "saved my life",
    "dying",
)
_TRIVIAL = _any(
    r"what time is it",
    r"(?:is it|it['’]s) (?:still )?(?:raining|cold|warm|sunny)",
    r"do you like \w+\?",
    "lol",
    "haha",
)
