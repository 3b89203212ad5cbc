"""A line of chat is said in one breath: what a model goes on to say after it is left away. C7"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from coterie.llm.errors import ModelError
from coterie.llm.messages import Priority, Prompt
from coterie.llm.roles import Role
from coterie.llm.router import Caller, Models
from coterie.modes.crowd.decisions import derive_seed
from coterie.modes.crowd.events import LineOutcome
from coterie.modes.crowd.personas import Situation
from coterie.modes.crowd.prompts import LineRequest, build_messages, instructions, situation_text

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


# A voice that needs no model: the persona's own lines, chosen by the situation and filled in with what is going on.
#
# It is what a room sounds like offline, what stands in when a model is late or out of order, and what makes a simulated
# evening the same everywhere.


_FALLBACK_SITUATIONS: dict[Situation, tuple[Situation, ...]] = {
    "question": ("topic", "idle"),
    "topic": ("idle",),
    "mention": ("reply", "idle"),
    "reply": ("mention", "idle"),
}
"""Where else to look when the first lines will not do."""


class CannedLines:
    name = "phrasebook"

    def write(self, request: LineRequest, attempt: int = 0) -> str:
        """A line, or nothing if there is none for this. Another attempt is another line."""
        lines: list[str] = []
        for situation in (request.situation, *_FALLBACK_SITUATIONS.get(request.situation, ("idle",))):
            said = request.persona.lines.get(situation, ())
            lines += _rotated([line for line in said if request.topics or "{topic}" not in line], request.seed)
        if attempt >= len(lines):
            return ""
        line = lines[attempt]
        emotes = request.persona.emotes
        topics = request.topics or ("",)
        filled = line.format(
            topic=topics[derive_seed(request.seed, "topic") % min(3, len(topics))],
            name=request.recipient or "chat",
            emote=emotes[derive_seed(request.seed, attempt, "emote") % len(emotes)] if emotes else "",
        ).strip()
        return (
            f"@{request.recipient} {filled}" if request.recipient and f"@{request.recipient}" not in filled else filled
        )


def _rotated(lines: list[str], seed: int) -> list[str]:
    """The same lines, beginning somewhere else."""
    start = derive_seed(seed, "phrase") % len(lines) if lines else 0
    return lines[start:] + lines[:start]


# A voice that asks a model for one line of chat. C7
#
# The phrasebook stands in where a person waits for an answer, or where the room wants it so, and the model is slow, out
# of order, or forgets its manners. What is late is dropped: a joke that is a minute old is not posted.


_ATTEMPTS = 2
_MAX_TOKENS = 40
_TEMPERATURE = 0.8
_MODEL_TIME_SHARE = 0.6
"""How much of its time a line may take before the phrasebook speaks instead."""


@dataclass(frozen=True, slots=True)
class WrittenLine:
    outcome: LineOutcome
    text: str = ""
    model: str = ""
    reason: str = ""


class CannedLineWriter:
    """The phrasebook alone, as a voice for a live room."""

    def __init__(self, manners: LineRules) -> None:
        self._rules = manners
        self._lines = CannedLines()

    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        why = "there is nothing it would say"
        for attempt in range(2 * _ATTEMPTS + 2):
            text = self._rules.clean(self._lines.write(request, attempt), request.persona.name)
            why = self._rules.rejection_reason(text, to_person=request.recipient_is_person)
            if not why:
                return WrittenLine("written", text, self._lines.name)
        return WrittenLine("refused", reason=why)


class ModelLineWriter:
    def __init__(self, models: Models, manners: LineRules, room: str, *, stand_in: bool = False) -> None:
        self._models = models
        self._rules = manners
        self._room = room
        self._canned = CannedLineWriter(manners)
        self._stand_in = stand_in

    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        stand_in = self._stand_in or request.recipient_is_person
        patience_s = deadline_s * _MODEL_TIME_SHARE if stand_in else deadline_s
        try:
            async with asyncio.timeout(patience_s):
                line = await self._ask(request, patience_s)
        except TimeoutError:
            line = WrittenLine("late", reason=f"it was not written within {patience_s:.0f} s")
        except ModelError as error:
            line = WrittenLine("failed", reason=error.what)
        if line.outcome != "written" and stand_in:
            return await self._canned.write(request, deadline_s)
        return line

    async def _ask(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        told = build_messages(request)
        # What it remembers it may say; the rest of its instructions it may not.
        secret = (instructions(replace(request, memories=())), situation_text(request))
        why = ""
        for attempt in range(_ATTEMPTS):
            prompt = Prompt(
                messages=told,
                max_tokens=_MAX_TOKENS,
                temperature=_TEMPERATURE,
                seed=(request.seed + attempt) % 2**31,
                stop=("\n",),
            )
            answer = await self._models.ask(
                Role.CROWD,
                prompt,
                caller=Caller(room=self._room, character=request.persona.name),
                priority=Priority.PERSON if request.recipient_is_person else Priority.CHARACTER,
                deadline_s=deadline_s,
            )
            text = remove_unpaired_marks(shorten(self._rules.clean(answer.text, request.persona.name)))
            why = length_problem(text) or self._rules.rejection_reason(
                text, secret, request.persona.complete_lines(), to_person=request.recipient_is_person
            )
            if not why:
                spoken = (
                    f"@{request.recipient} {text}"
                    if request.recipient and f"@{request.recipient}".casefold() not in text.casefold()
                    else text
                )
                return WrittenLine("written", spoken, answer.model)
        return WrittenLine("refused", reason=why)
