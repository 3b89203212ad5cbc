"""A line of chat is said in one breath: what a model goes on to say after it is left away. C7"""

from __future__ import annotations

import re

_MOST_WORDS = 20
_FEWEST_WORDS = 4
_ENDS = re.compile(r"[.!?…]+[\"”')\]]*(?=\s|$)")
_RESTS = re.compile(r"[,;:–—-]+(?=\s)|\s(?=\()")
_WORD = re.compile(r"\w[\w'’]*")
_ENOUGH_TO_TELL = 8
_REPEATED = 0.5


def in_one_breath(text: str) -> str:
    """As it is, if it is short; else up to the first sentence's end, or the last comma before it is too long."""
    words = list(_WORD.finditer(text))
    if len(words) <= _MOST_WORDS:
        return text
    earliest, latest = words[_FEWEST_WORDS - 1].end(), words[_MOST_WORDS - 1].end()
    ends = [found.end() for found in _ENDS.finditer(text) if earliest <= found.start() <= latest]
    if ends:
        return text[: ends[0]]
    rests = [found.start() for found in _RESTS.finditer(text) if earliest <= found.start() <= latest]
    return text[: rests[-1]] if rests else text


def closed(text: str) -> str:
    """Without a quotation mark or a bracket that has lost its other half."""
    if text.count('"') % 2:
        text = text.replace('"', "")
    for opens, closes in ("()", "[]", "“”"):
        if text.count(opens) != text.count(closes):
            text = text.replace(opens, "").replace(closes, "")
    return text.strip()


def rambling(text: str) -> str:
    """Why a line is no line: it has no end, or goes in circles. Nothing if it is one."""
    words = [word.casefold() for word in _WORD.findall(text)]
    if len(words) > _MOST_WORDS:
        return "it goes on and on"
    if len(words) >= _ENOUGH_TO_TELL and len(set(words)) / len(words) <= _REPEATED:
        return "it goes in circles"
    return ""
