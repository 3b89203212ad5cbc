"""A line of chat is said in one breath: what a model goes on to say after it is left away. C7"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise

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


# What a persona's line has to be: one line, its own, in character. C7
#
# Whoever wrote it, model or phrasebook, it passes here. A line that cannot be mended is refused with a reason.


_MAX_RECENT_LINES = 600
_RECENT_FOR_PERSON = 40
_COPY_SIMILARITY = 0.5
_OUT_OF_CHARACTER = re.compile(
    r"(?i)\bas an? (?:ai|a\.i\.|language model|assistant|llm)\b|\blanguage model\b|\bopenai\b"
    r"|\bi(?:'m| am) (?:just )?an? (?:ai|bot|assistant)\b|\bmy (?:system )?prompt\b|\bmy instructions\b"
    r"|\bi (?:cannot|can't|am unable to) (?:assist|help with|comply|fulfil)"
    r"|\bhow can i (?:help|assist) you\b|<\|[^|]*\|>|\[/?inst\]|^\s*(?:system|assistant|user)\s*:"
)
_NARRATES = re.compile(
    r"(?i)^\W*(?:the\s+|this\s+)?(?:streamer|viewer|chat)s?[\s,]+"
    r"(?:said|says|asked|asks|replied|replies|wrote|writes|explained|mentioned|told|who|was)\b"
)
_SPEAKS_FOR = re.compile(
    r"(?i)^\W*(?:[\w@.-]+ ?){1,3}:\s*[\"“']|^\W*(?:the )?(?:streamer|viewer|chat|user|guest\w*|me|you|[aq])\s*:"
)
_STAGE_DIRECTION = re.compile(r"^\s*\((?=(?:\W*\b\w+\b){4})[^)]*\)?\W*$")
_REPEATS_INSTRUCTIONS = re.compile(
    r"(?i)^\W*you(?:'re| are) (?:\w+, )?"
    r"(?:one of (?:the )?many|a (?:regular|viewer|member|persona|character|chatter)) (?:in|of)\b"
    r"|^\W*(?:write|answer|reply|respond)\b.{0,20}\bone (?:short )?line\b"
    r"|^\W*(?:how you write|you remember|others in the chat)\s*:"
)
_UNFILLED_TEMPLATE = re.compile(r"\{[a-z_]*\}|```")
_WORD = re.compile(r"\w+")
_QUOTE_WORDS = 6
_PARAPHRASE_SHARE = 0.5
_MIN_PAIRS = 5


class LineRules:
    """Remembers what was just said in the room, to know a copy when it sees one."""

    def __init__(self, longest: int) -> None:
        self._max_length = longest
        self._recent: deque[frozenset[str]] = deque(maxlen=_MAX_RECENT_LINES)

    def add_recent(self, text: str) -> None:
        self._recent.append(_word_pairs(text))

    def clean(self, raw: str, name: str) -> str:
        """Quotation marks around it, the speaker's own name before it and all but the first line are not part of it."""
        first = next((line.strip() for line in raw.strip().splitlines() if line.strip()), "")
        first = re.sub(rf"(?i)^\s*[@<\[*]*{re.escape(name)}[>\]*]*\s*[:：]\s*", "", first)
        if len(first) > 1 and first[0] in "\"“'" and first[-1] in "\"”'":
            first = first[1:-1].strip()
        if len(first) > self._max_length:
            cut = first[: self._max_length]
            ends = max(cut.rfind(mark) for mark in ".!?…")
            first = cut[: ends + 1] if ends > self._max_length // 3 else cut.rsplit(" ", 1)[0]
        return "".join(c for c in first if c.isprintable()).strip()

    def rejection_reason(
        self, line: str, prompts: Sequence[str] = (), example_lines: Iterable[str] = (), *, to_person: bool = False
    ) -> str:
        """Why a mended line cannot be said; nothing if it can.

        `told` is what a model was told to write it, its instructions first; `own` are lines it was shown as the
        persona's.

        A person who asks should get an answer: there only a copy of what was said very lately is one.
        """
        if not _WORD.search(line):
            return "it says nothing"
        if _OUT_OF_CHARACTER.search(line):
            return "it falls out of character"
        if any(sign.search(line) for sign in (_NARRATES, _SPEAKS_FOR, _STAGE_DIRECTION)):
            return "it tells what others say instead of speaking"
        if _UNFILLED_TEMPLATE.search(line):
            return "something in it was not filled in"
        if (
            _REPEATS_INSTRUCTIONS.search(line)
            or any(_quotes(line, each) for each in prompts)
            or _paraphrases(line, prompts[:1])
        ):
            return "it repeats what only the model was told"
        mine = _word_pairs(line)
        if any(_is_near_copy(mine, _word_pairs(each)) for each in example_lines):
            return "it is a line that was written for it"
        lately = islice(reversed(self._recent), _RECENT_FOR_PERSON if to_person else None)
        if any(_is_near_copy(mine, theirs) for theirs in lately):
            return "it is a near copy of what was just said"
        return ""


def _word_pairs(text: str) -> frozenset[str]:
    """Pairs of words, and the words of what is too short to have many: names of whom it is said to do not count."""
    words = _WORD.findall(re.sub(r"@\S+", "", text.casefold()))
    pairs = {f"{first} {second}" for first, second in pairwise(words)}
    return frozenset(pairs if len(words) > 2 else [" ".join(words)])


def _is_near_copy(one: frozenset[str], other: frozenset[str]) -> bool:
    shared = len(one & other)
    return shared > 0 and shared / len(one | other) >= _COPY_SIMILARITY


def _paraphrases(line: str, instructions: Iterable[str]) -> bool:
    """Whether most of it stands in the instructions, in whatever order: so they are said back in other words."""
    mine = _word_pairs(line)
    shared = {pair for each in instructions for pair in mine & _word_pairs(each)}
    return len(mine) >= _MIN_PAIRS and len(shared) / len(mine) > _PARAPHRASE_SHARE


def _quotes(line: str, told: str) -> bool:
    words = _WORD.findall(line.casefold())
    whole = " ".join(_WORD.findall(told.casefold()))
    return any(" ".join(words[at : at + _QUOTE_WORDS]) in whole for at in range(len(words) - _QUOTE_WORDS + 1))
