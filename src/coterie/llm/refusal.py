"""Recognises a model that declines instead of answering.

A bare text is judged by how it begins; a text inside valid JSON only by whole phrases no character would say as a fact,
because "I can't swim" is a fine thing to know about somebody.
"""

from __future__ import annotations

import re
from typing import Any

_SORRY = r"(?:i['’]?m|i am) (?:very |so |truly )?sorry|(?:i )?apologi[sz]e|sorry"
_CANNOT = r"i (?:can['’]?t|cannot|can not|won['’]?t|will not|am unable to|['’]?m unable to|must decline)"
_HELP = (
    r"(?:help|assist|comply|provide|create|generate|engage|fulfil|participate|continue|do that|discuss|write|produce)"
)

_OPENS = re.compile(
    rf"\W*(?:(?:{_SORRY})\b|{_CANNOT}\b|i['’]m unable to\b|as an ai\b|as a (?:large )?language model\b)", re.I
)
_PHRASE = re.compile(
    rf"\bas an ai (?:language )?(?:model|assistant)\b|\bas a large language model\b"
    rf"|(?:{_SORRY})[,.]? (?:but )?{_CANNOT}|{_CANNOT} {_HELP}\b",
    re.I,
)


def is_refusal(text: str) -> bool:
    return _OPENS.match(text) is not None


def contains_refusal(value: Any) -> bool:
    """Whether any text in parsed JSON is a refusal put in a field."""
    if isinstance(value, str):
        return _PHRASE.search(value) is not None
    if isinstance(value, dict):
        return any(map(contains_refusal, value.values()))
    if isinstance(value, list):
        return any(map(contains_refusal, value))
    return False
