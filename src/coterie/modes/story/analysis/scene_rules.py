"""Rules that detect the end of a scene, a change of place and a skip in time from the words of an exchange.

They decide only what is unmistakable: a whole sentence of narration that says it. Quoted speech, questions, wishes,
plans, memories and reports never count; what the rules leave open is for the classifier.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

SceneEnd = Literal["", "place", "done", "time"]

DEFAULT_MINUTES = 2
"""How long an exchange takes if nothing is known about it."""
MAX_MINUTES = 60 * 24 * 366 * 10
MAX_PLACE_NAME = 60
_MAX_SENTENCE = 300
"""Characters; longer sentences state nothing unmistakably."""


@dataclass(frozen=True)
class SceneChange:
    """What an exchange changed about the scene."""

    end: SceneEnd = ""
    minutes: int | None = None
    """How much time passed; None if the words do not say."""
    part_of_day: str = ""
    """When the next scene begins, such as `morning`, if the words name it instead of a duration."""
    place: str = ""
    """The name of the place they are in now."""


_MAX_TEXT = 10_000
"""Characters at the beginning and at the end of a text that are read."""
_QUOTED = re.compile(r'"[^"]{0,2000}"|“[^”]{0,2000}”|«[^»]{0,2000}»|„[^“]{0,2000}“')
_SENTENCE = re.compile(r"[^.!?…\n*~]+[.!?…]*")

_DONE = re.compile(
    r"(?:the end|fade (?:to black|out)|cut to black|curtain|end (?:of )?(?:the |this )?scene|scene over"
    r"|(?:the|this) scene (?:ends|is over|closes))",
    re.I,
)
_DONE_SPOKEN = re.compile(
    r"(?:(?:well|okay|ok|so|then|right|i think|i guess|and)[,.]? )*(?:we(?:['’]re| are) (?:all )?done here)", re.I
)

_NUMBERS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
}
_VAGUE = {"a few": 3, "several": 3, "some": 3, "many": 6, "a couple of": 2, "half a": 0.5, "half an": 0.5}
_UNIT_MINUTES = {
    "second": 0,
    "minute": 1,
    "hour": 60,
    "night": 60 * 24,
    "day": 60 * 24,
    "week": 60 * 24 * 7,
    "fortnight": 60 * 24 * 14,
    "month": 60 * 24 * 30,
    "year": 60 * 24 * 365,
}
_PART_HOURS = {"dawn": 6, "morning": 8, "day": 9, "noon": 12, "afternoon": 15, "evening": 19, "dusk": 19, "night": 22}
_LEAD = r"(?:(?:and|then|so|but|now|finally|eventually|at last)[,]? )*(?:early |late )?"
_NOT_A_SKIP = r"(?! (?:than|was|is|were|are|would|will|works?|seems?|sounds?|suits?|might|could|can|may|and i['’]d)\b)"
_AMOUNT = rf"(?P<amount>{'|'.join([*_VAGUE, *_NUMBERS, r'[0-9]{1,4}'])}) "
_UNIT = rf"(?P<unit>{'|'.join(_UNIT_MINUTES)})s?"
_PASSED = r"(?: later| afterwards| after that| pass(?:es|ed)?| go(?:es)? by| went by| ha(?:ve|s|d) passed)\b"
_DURATION = re.compile(rf"{_LEAD}(?:{_AMOUNT})?{_UNIT}{_PASSED}{_NOT_A_SKIP}", re.I)
_NAMED_TIME = re.compile(
    rf"{_LEAD}(?:later )?(?:the (?:next|following|same)|that same|that|next) "
    r"(?P<part>morning|day|afternoon|evening|night|week|month|year)(?:,|$"
    r"| (?!(?:was|is|were|are|would|will|works?|seems?|sounds?|suits?|might|could|can|may|has|had|of|at|in|and|or|for"
    r"|he|his|my|your|their)\b)\w)",
    re.I,
)
_COMES = re.compile(
    rf"{_LEAD}(?:the )?(?P<part>morning|dawn|evening|dusk|night|noon|spring|summer|autumn|winter) "
    r"(?:comes|came|falls|fell|arrives|arrived|breaks|broke)(?! (?:early|late|quickly|fast|again every))\b",
    re.I,
)
_VAGUE_LATER = re.compile(rf"{_LEAD}(?:much|some ?time|a little|a while) later\b{_NOT_A_SKIP}", re.I)
_SKIP = re.compile(r"(?:time ?skip|fast[- ]forward|skip (?:ahead|forward))\b[: ]*", re.I)

_SUBJECT = (
    r"(?P<together>(?:then |so |and |together |slowly |finally )*(?:we|they|you and i|we (?:both|all)"
    r"|the (?:two|three|four) of (?:us|you|them)|both of (?:us|you|them)))"
)
_GO = (
    r"(?:drive|drove|walk(?:ed)?|head(?:ed)?|go|went|come|came|return(?:ed)?|travel(?:l?ed)?|ride|rode|row(?:ed)?"
    r"|sail(?:ed)?|fly|flew|move(?:d)?|hurr(?:y|ied)|run|ran|climb(?:ed)?|step(?:ped)?|wander(?:ed)?|stroll(?:ed)?"
    r"|sneak(?:ed)?|snuck|slip(?:ped)?|hike(?:d)?|cycle(?:d)?|cross(?:ed)?|get|got|ma(?:k|d)e (?:our|their) way"
    r"|t(?:ake|ook) (?:a|the) (?:bus|train|taxi|cab|ferry|boat|tram|lift|car))"
)
_WAY = r"(?: (?:back|down|up|over|out|outside|inside|away|off|all the way|together|upstairs|downstairs|\w+ly))*"
_TO = r" (?:to|into|onto|inside|aboard|on) "
_ARRIVE = r"(?:arrive(?:d)? (?:at|in) |reach(?:ed)? |enter(?:ed)? )"
_PERSON = r"(?:i|you|he|she|they|we|[A-Z][\w'’-]+)"
_BRING = (
    r"(?:lead|leads|led|take|takes|took|bring|brings|brought|guide[sd]?|drag(?:s|ged)?|pull(?:s|ed)?|carr(?:y|ies|ied)"
    r"|usher(?:s|ed)?|follow(?:s|ed)?)"
)
_PLACE = r"(?P<place>.+)"
_MOVES = (
    re.compile(rf"{_SUBJECT} {_GO}{_WAY}(?:{_TO}{_PLACE}| (?P<home>home))", re.I),
    re.compile(rf"{_SUBJECT} {_ARRIVE}{_PLACE}", re.I),
    re.compile(
        rf"(?P<who>{_PERSON}) {_BRING} (?P<whom>you|me|us|them|him|her|[A-Z][\w'’-]+){_WAY}(?: to| into| inside| onto)"
        rf" {_PLACE}",
        re.I,
    ),
)
_UNREAL = re.compile(
    r"\b(?:if|would|could|should|might|must|may|shall|will|let['’]?s|let us|wants?|wanted|plan(?:s|ned)?|wish(?:ed)?"
    r"|hoped?|maybe|perhaps|remember|recall|used to|yesterday|ago|once|always|never|almost|sometimes|often|every|each"
    r"|when|before|after|until|dream(?:ed|t)?|imagine|tell|told|said|says|think|thought|had|has|have|not|going to"
    r"|last (?:night|week|month|year|summer|winter|spring|autumn|time))\b|n['’]t\b|['’](?:d|ve|ll)\b",
    re.I,
)
_PLACE_END = re.compile(
    r",|;|:| - | – |—| (?:and|but|where|while|as|then|because|so|before|after|with|without|in (?:silence|the rain|time"
    r"|the dark)|together|just|late|for|until|when|that|which|laughing|soaked)\b",
    re.I,
)
_DETERMINERS = frozenset("the a an my your his her our their this that".split())  # noqa: SIM905
_NO_PLACES = frozenset(
    """
    door doorway window table bed sofa couch chair armchair counter bench fire fireplace hearth stove sink mirror
    wall corner desk shelf shelves bookcase edge end side middle centre center railing rail front back floor ground
    feet knees chest arms lap lamp light lantern map page top bottom conclusion decision agreement point terms
    subject matter topic competition age number sleep rest work war pieces life lives it me you him us them other
    others
    """.split()  # noqa: SIM905 - easier to read than quoted words
)
"""Spots within a place, and words that are no places at all."""


def detect_scene_change(texts: Sequence[str]) -> SceneChange:
    """The change that a message and its reply state, if any. A skip in time or an explicit end beats a move."""
    move = SceneChange()
    for text in map(_both_ends, texts):
        if any(_DONE_SPOKEN.fullmatch(_bare(sentence)) for sentence in _statements(text)):
            return SceneChange(end="done")
        for sentence in _statements(_QUOTED.sub("\n", text)):
            bare = _bare(sentence)
            if _DONE.fullmatch(bare):
                return SceneChange(end="done")
            if (skip := _time_skip(bare)) is not None:
                return skip
            if not move.end and (place := _new_place(bare)):
                move = SceneChange(end="place", place=place)
    return move


def minutes_until(clock: datetime, part: str) -> int:
    """Minutes from a time in the fiction to the next such part of a day, or to the next week, month or year."""
    if part in ("week", "month", "year"):
        return _UNIT_MINUTES[part]
    if part not in _PART_HOURS:  # a season
        return _UNIT_MINUTES["month"] * 3
    target = clock.replace(hour=_PART_HOURS[part], minute=0, second=0, microsecond=0)
    if target <= clock or (part in ("morning", "day", "dawn") and target - clock < timedelta(hours=2)):
        target += timedelta(days=1)
    return int((target - clock) / timedelta(minutes=1))


def _statements(text: str) -> list[str]:
    """The sentences of a text that are no questions, without quotation marks."""
    sentences = [sentence.strip(' \t"“”«»„()[]-–—') for sentence in _SENTENCE.findall(text)]
    return [one for one in sentences if 0 < len(one) <= _MAX_SENTENCE and not one.endswith("?")]


def _both_ends(text: str) -> str:
    return text if len(text) <= 2 * _MAX_TEXT else f"{text[:_MAX_TEXT]}\n{text[-_MAX_TEXT:]}"


def _bare(sentence: str) -> str:
    return " ".join(sentence.rstrip('.!?… "”»').split())


def _time_skip(sentence: str) -> SceneChange | None:
    if skip := _SKIP.match(sentence):
        duration = _duration_minutes(sentence[skip.end() :])
        return SceneChange(end="time", minutes=duration, part_of_day="" if duration else "day")
    if match := _DURATION.match(sentence):
        return SceneChange(end="time", minutes=_minutes(match["amount"], match["unit"]))
    if match := _NAMED_TIME.match(sentence) or _COMES.match(sentence):
        return SceneChange(end="time", part_of_day=match["part"].lower())
    if _VAGUE_LATER.match(sentence):
        return SceneChange(end="time", minutes=60)
    return None


def _duration_minutes(text: str) -> int | None:
    match = re.match(rf"(?:{_AMOUNT})?{_UNIT}\b", text.strip(), re.I)
    return _minutes(match["amount"], match["unit"]) if match else None


def _minutes(amount: str | None, unit: str) -> int:
    word = (amount or "several").lower()
    number = _VAGUE.get(word) or _NUMBERS.get(word) or float(word)
    return max(1, min(MAX_MINUTES, int(number * _UNIT_MINUTES[unit.lower()])))


def _new_place(sentence: str) -> str:
    """The place that a sentence moves everybody to; empty if it is no such sentence."""
    if _UNREAL.search(sentence):
        return ""
    for pattern in _MOVES:
        if match := pattern.match(sentence):
            groups = match.groupdict()
            if groups.get("home"):
                return "home"
            return _place_name(groups["place"])
    return ""


def _place_name(text: str) -> str:
    """The noun phrase at the beginning of a text, unless it is a spot within a place or no place at all."""
    # "to the top, then cross over to the tower": the last destination counts.
    if later := re.search(rf",? (?:then|and) (?:{_GO}|\w+){_WAY}{_TO}(.+)$", text, re.I):
        text = later[1]
    name = _PLACE_END.split(text, maxsplit=1)[0].strip(" .!…")
    words = name.split()
    if not words or len(words) > 6 or len(name) > MAX_PLACE_NAME or words[-1].lower() in _NO_PLACES:
        return ""
    if words[0].lower() not in _DETERMINERS and not words[0][0].isupper() and len(words) == 1:
        return ""
    return name
