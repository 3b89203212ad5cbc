"""Writes the lines of personas with a model or from their canned lines, and checks them.

Every line is cleaned and checked, whoever wrote it; one that cannot be used is refused with a reason.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, Protocol

from coterie.llm import Caller, ModelAnswer, ModelError, Models, Priority, Prompt, Role
from coterie.modes.crowd.decisions import derive_seed
from coterie.modes.crowd.events import LineOutcome
from coterie.modes.crowd.personas import Situation
from coterie.modes.crowd.prompts import (
    LineRequest,
    build_instructions,
    build_messages,
    build_script,
    describe_situation,
)
from coterie.modes.crowd.protocol import MAX_MESSAGE_CHARS

_ATTEMPTS = 2
NO_LINE = "it has no line for this"
_MAX_TOKENS = 40
_TEMPERATURE = 0.8
_MODEL_TIME_SHARE = 0.6
"""Share of the deadline after which canned lines replace the model."""
_LEARN = 0.3
"""Weight of the latest line in the measured time per line."""
_FORGET = 0.97
"""The measured time shrinks while the model is not asked, so that it is tried again."""
_MAX_WORDS = 20
_MIN_WORDS = 4

_SENTENCE_END = re.compile(r"[.!?…]+[\"”')\]]*(?=\s|$)")
_CLAUSE_END = re.compile(r"[,;:–—-]+(?=\s)|\s(?=\()")
_SPOKEN_WORD = re.compile(r"\w[\w'’]*")
_MIN_WORDS_FOR_REPETITION = 8
_REPETITION_SHARE = 0.5


def shorten(text: str) -> str:
    """Cut a long text after its first sentence, or at the last comma within the limit."""
    words = list(_SPOKEN_WORD.finditer(text))
    if len(words) <= _MAX_WORDS:
        return text
    earliest, latest = words[_MIN_WORDS - 1].end(), words[_MAX_WORDS - 1].end()
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if earliest <= match.start() <= latest]
    if ends:
        return text[: ends[0]]
    clauses = [match.start() for match in _CLAUSE_END.finditer(text) if earliest <= match.start() <= latest]
    return text[: clauses[-1]] if clauses else text


def remove_unpaired_marks(text: str) -> str:
    """Remove quotation marks and brackets without a counterpart."""
    if text.count('"') % 2:
        text = text.replace('"', "")
    for opens, closes in ("()", "[]", "“”"):
        if text.count(opens) != text.count(closes):
            text = text.replace(opens, "").replace(closes, "")
    return text.strip()


def length_problem(text: str) -> str:
    """Why a line is too long or too repetitive; empty if it is neither."""
    words = [word.casefold() for word in _SPOKEN_WORD.findall(text)]
    if len(words) > _MAX_WORDS:
        return "it is too long"
    if len(words) >= _MIN_WORDS_FOR_REPETITION and len(set(words)) / len(words) <= _REPETITION_SHARE:
        return "it repeats itself"
    return ""


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
    """Cleans and checks lines; keeps the room's recent lines to detect copies."""

    def __init__(self, max_length: int) -> None:
        self._max_length = max_length
        self._recent: deque[frozenset[str]] = deque(maxlen=_MAX_RECENT_LINES)

    def add_recent(self, text: str) -> None:
        self._recent.append(_word_pairs(text))

    def clean(self, raw: str, name: str) -> str:
        """Return the first line, without enclosing quotation marks and the speaker's own name before it."""
        first = next((line.strip() for line in raw.strip().splitlines() if line.strip()), "")
        first = re.sub(rf"(?i)^\s*[@<\[*]*{re.escape(name)}[>\]*]*\s*[:：]\s*", "", first)
        if len(first) > 1 and first[0] in "\"“'" and first[-1] in "\"”'":
            first = first[1:-1].strip()
        if len(first) > self._max_length:
            cut = first[: self._max_length]
            ends = max(cut.rfind(mark) for mark in ".!?…")
            first = cut[: ends + 1] if ends > self._max_length // 3 else cut.rsplit(" ", 1)[0]
        return "".join(c for c in first if c.isprintable()).strip()

    def refusal_reason(
        self, line: str, prompts: Sequence[str] = (), example_lines: Iterable[str] = (), *, to_person: bool = False
    ) -> str:
        """Why a cleaned line cannot be posted; empty if it can.

        `prompts` are the model's prompt texts, instructions first; `example_lines` the persona's lines in the prompt.
        A line to a person is compared with fewer recent lines, because a person should get an answer.
        """
        if not _WORD.search(line):
            return "it says nothing"
        if _OUT_OF_CHARACTER.search(line):
            return "it falls out of character"
        if any(sign.search(line) for sign in (_NARRATES, _SPEAKS_FOR, _STAGE_DIRECTION)):
            return "it describes what others say instead of speaking"
        if _UNFILLED_TEMPLATE.search(line):
            return "something in it was not filled in"
        if (
            _REPEATS_INSTRUCTIONS.search(line)
            or any(_quotes(line, each) for each in prompts)
            or _paraphrases(line, prompts[:1])
        ):
            return "it repeats the model's instructions"
        pairs = _word_pairs(line)
        if any(_is_near_copy(pairs, _word_pairs(each)) for each in example_lines):
            return "it is a line that was written for it"
        recent = islice(reversed(self._recent), _RECENT_FOR_PERSON if to_person else None)
        if any(_is_near_copy(pairs, other) for other in recent):
            return "it is a near copy of what was just said"
        return ""


def _word_pairs(text: str) -> frozenset[str]:
    """The pairs of adjacent words, or the whole text if it has at most two. Mentions are ignored."""
    words = _WORD.findall(re.sub(r"@\S+", "", text.casefold()))
    pairs = {f"{first} {second}" for first, second in pairwise(words)}
    return frozenset(pairs if len(words) > 2 else [" ".join(words)])


def _is_near_copy(pairs: frozenset[str], other: frozenset[str]) -> bool:
    shared = len(pairs & other)
    return shared > 0 and shared / len(pairs | other) >= _COPY_SIMILARITY


def _paraphrases(line: str, instructions: Iterable[str]) -> bool:
    """Whether most of the line's word pairs occur in the instructions."""
    pairs = _word_pairs(line)
    shared = {pair for each in instructions for pair in pairs & _word_pairs(each)}
    return len(pairs) >= _MIN_PAIRS and len(shared) / len(pairs) > _PARAPHRASE_SHARE


def _quotes(line: str, prompt: str) -> bool:
    words = _WORD.findall(line.casefold())
    prompt_words = " ".join(_WORD.findall(prompt.casefold()))
    return any(" ".join(words[at : at + _QUOTE_WORDS]) in prompt_words for at in range(len(words) - _QUOTE_WORDS + 1))


_FALLBACK_SITUATIONS: dict[Situation, tuple[Situation, ...]] = {
    "question": ("topic", "idle"),
    "topic": ("idle",),
    "mention": ("reply", "idle"),
    "reply": ("mention", "idle"),
    "greeting": ("mention", "idle"),
    "tease": ("reply", "mention", "idle"),
}
"""Situations whose lines are used when the first ones are exhausted."""


class CannedLines:
    """The persona's own lines, chosen by situation and seed, with placeholders filled in."""

    name = "phrasebook"

    def write(self, request: LineRequest, attempt: int = 0) -> str:
        """Return a line, a different one per attempt; empty if there is none left."""
        lines: list[str] = []
        for situation in (request.situation, *_FALLBACK_SITUATIONS.get(request.situation, ("idle",))):
            authored = request.persona.lines.get(situation, ())
            lines += _rotate([line for line in authored if request.topics or "{topic}" not in line], request.seed)
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


def _rotate(lines: list[str], seed: int) -> list[str]:
    """Rotate the lines by an offset derived from the seed."""
    start = derive_seed(seed, "phrase") % len(lines) if lines else 0
    return lines[start:] + lines[:start]


@dataclass(frozen=True, slots=True)
class WrittenLine:
    outcome: LineOutcome
    text: str = ""
    model: str = ""
    reason: str = ""
    fallback: str = ""
    """Why the model's line was not used, if this is a canned one."""


class CannedLineWriter:
    """Writes from canned lines only."""

    def __init__(self, rules: LineRules) -> None:
        self._rules = rules
        self._lines = CannedLines()

    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        reason = NO_LINE
        for attempt in range(2 * _ATTEMPTS + 2):
            text = self._rules.clean(self._lines.write(request, attempt), request.persona.name)
            reason = self._rules.refusal_reason(text, to_person=request.recipient_is_person)
            if not reason:
                return WrittenLine("written", text, self._lines.name)
        return WrittenLine("refused", reason=reason)


class ModelLineWriter:
    """Asks a model for one line. Late lines are dropped.

    Canned lines replace the model's where a person waits for an answer, and everywhere if the request allows it.
    """

    def __init__(self, models: Models, rules: LineRules, room: str) -> None:
        self._models = models
        self._rules = rules
        self._room = room
        self._canned = CannedLineWriter(rules)
        self._waiting = 0
        """Lines that the model is asked for now."""
        self._seconds_per_line = 0.0
        """How much a waiting line delays the next one, by what was measured."""

    async def write(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        stand_in = request.stand_in or request.recipient_is_person
        timeout_s = deadline_s * _MODEL_TIME_SHARE if stand_in else deadline_s
        if not request.recipient_is_person and (self._waiting + 1) * self._seconds_per_line > timeout_s:
            # It would be late, and would make the others late as well.
            self._seconds_per_line *= _FORGET
            line = WrittenLine("late", reason=f"the model was busy; lines in progress: {self._waiting}")
        else:
            line = await self._write_in_time(request, timeout_s)
        if line.outcome != "written" and stand_in:
            canned = await self._canned.write(request, deadline_s)
            return replace(canned, fallback=line.reason) if canned.outcome == "written" else canned
        return line

    async def _write_in_time(self, request: LineRequest, timeout_s: float) -> WrittenLine:
        started, self._waiting = asyncio.get_running_loop().time(), self._waiting + 1
        waiting, late = self._waiting, False
        try:
            async with asyncio.timeout(timeout_s):
                return await self._ask(request, timeout_s)
        except TimeoutError:
            late = True
            return WrittenLine("late", reason=f"it was not written within {timeout_s:.0f} s")
        except ModelError as error:
            return WrittenLine("failed", reason=error.what)
        finally:
            self._waiting -= 1
            # How long a late line would have taken is not known: as long again, so that fewer are asked for.
            taken_s = (asyncio.get_running_loop().time() - started) * (1 + late) / waiting
            self._seconds_per_line += (taken_s - self._seconds_per_line) * _LEARN

    async def _ask(self, request: LineRequest, deadline_s: float) -> WrittenLine:
        # A line may repeat memories, but not the rest of the instructions.
        prompts = (build_instructions(replace(request, memories=())), describe_situation(request))
        reason = ""
        for attempt in range(_ATTEMPTS):
            answer = await self._models.ask(
                Role.CROWD,
                _line_prompt(self._models, request, attempt),
                caller=Caller(room=self._room, character=request.persona.name),
                priority=Priority.PERSON if request.recipient_is_person else Priority.CHARACTER,
                deadline_s=deadline_s,
            )
            text = remove_unpaired_marks(shorten(self._rules.clean(answer.text, request.persona.name)))
            reason = length_problem(text) or self._rules.refusal_reason(
                text, prompts, request.persona.complete_lines(), to_person=request.recipient_is_person
            )
            if not reason:
                return WrittenLine("written", _address(text, request.recipient), answer.model)
        return WrittenLine("refused", reason=reason)


def _line_prompt(models: Models, request: LineRequest, attempt: int) -> Prompt:
    """The prompt for a line. A small model is asked with a script, which gives several candidates in one call."""
    return Prompt(
        messages=build_messages(request),
        max_tokens=_MAX_TOKENS,
        temperature=_TEMPERATURE,
        seed=(request.seed + attempt) % 2**31,
        stop=("\n",),
        script=build_script(request) if models.catalogue.asks_with_script(Role.CROWD) else None,
    )


class ReplayLines(Protocol):
    """Writes the lines of a replay that are not in the recording."""

    def write(self, request: LineRequest, attempt: int = 0) -> str:
        """Return a line, a different one per attempt; empty if there is none."""
        ...


class _ModelLines:
    def __init__(
        self,
        models: Models,
        room: str,
        wait: Callable[[Coroutine[Any, Any, ModelAnswer]], ModelAnswer],
        most: float = math.inf,
    ) -> None:
        """`wait` waits for an answer; after `most` calls, canned lines are used."""
        self._models = models
        self._room = room
        self._wait = wait
        self._left = most

    def write(self, request: LineRequest, attempt: int = 0) -> str:
        if self._left <= 0:
            return CannedLines().write(request, attempt)
        if attempt >= _ATTEMPTS:
            return ""
        self._left -= 1
        prompt = _line_prompt(self._models, request, attempt)
        caller = Caller(room=self._room, character=request.persona.name)
        answer = self._wait(self._models.ask(Role.CROWD, prompt, caller=caller))
        text = remove_unpaired_marks(shorten(LineRules(MAX_MESSAGE_CHARS).clean(answer.text, request.persona.name)))
        return "" if length_problem(text) else _address(text, request.recipient)


@contextmanager
def model_lines(models: Models, room: str) -> Iterator[ReplayLines]:
    """Let a model write the lines of a replay. Not for use in a running event loop."""
    with asyncio.Runner() as runner:
        try:
            yield _ModelLines(models, room, runner.run)
        finally:
            runner.run(models.close())


def model_lines_from_thread(models: Models, room: str, loop: asyncio.AbstractEventLoop, *, most: int) -> ReplayLines:
    """Let a model of a running event loop write up to so many lines of a replay in another thread."""
    return _ModelLines(models, room, lambda answer: asyncio.run_coroutine_threadsafe(answer, loop).result(), most)


def _address(text: str, recipient: str) -> str:
    """Begin with a mention of whom it answers, unless there is one."""
    if recipient and f"@{recipient}".casefold() not in text.casefold():
        return f"@{recipient} {text}"
    return text
