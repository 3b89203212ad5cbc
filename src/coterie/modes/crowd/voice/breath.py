"""A line of chat is said in one breath: what a model goes on to say after it is left away. C7"""

from __future__ import annotations

import re

_MAX_WORDS = 20
_MIN_WORDS = 4
_SENTENCE_END = re.compile(r"[.!?…]+[\"”')\]]*(?=\s|$)")
_CLAUSE_END = re.compile(r"[,;:–—-]+(?=\s)|\s(?=\()")
_SPOKEN_WORD = re.compile(r"\w[\w'’]*")
_MIN_WORDS_FOR_REPETITION = 8
_REPETITION_SHARE = 0.5


def shorten(text: str) -> str:
    """As it is, if it is short; else up to the first sentence's end, or the last comma before it is too long."""
    words = list(_SPOKEN_WORD.finditer(text))
    if len(words) <= _MAX_WORDS:
        return text
    earliest, latest = words[_MIN_WORDS - 1].end(), words[_MAX_WORDS - 1].end()
    ends = [found.end() for found in _SENTENCE_END.finditer(text) if earliest <= found.start() <= latest]
    if ends:
        return text[: ends[0]]
    rests = [found.start() for found in _CLAUSE_END.finditer(text) if earliest <= found.start() <= latest]
    return text[: rests[-1]] if rests else text


def remove_unpaired_marks(text: str) -> str:
    """Without a quotation mark or a bracket that has lost its other half."""
    if text.count('"') % 2:
        text = text.replace('"', "")
    for opens, closes in ("()", "[]", "“”"):
        if text.count(opens) != text.count(closes):
            text = text.replace(opens, "").replace(closes, "")
    return text.strip()


def length_problem(text: str) -> str:
    """Why a line is no line: it has no end, or goes in circles. Nothing if it is one."""
    words = [word.casefold() for word in _SPOKEN_WORD.findall(text)]
    if len(words) > _MAX_WORDS:
        return "it goes on and on"
    if len(words) >= _MIN_WORDS_FOR_REPETITION and len(set(words)) / len(words) <= _REPETITION_SHARE:
        return "it goes in circles"
    return ""
