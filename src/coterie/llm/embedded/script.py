"""Replies of small models as the next line of a script: the text to continue, and the choice among several candidates.

A small model drifts off, speaks for the person or repeats itself in many of its lines, but seldom in all of several.
Candidates that break a rule are discarded, and the most likely and most fitting of the others is used. If none is left,
a line by the character's author is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.llm.messages import Script

Similarity = Callable[[str, Sequence[str]], Sequence[float]]
"""How similar a text is to each of the others in meaning, about 0 to 1."""

TEMPERATURES = (0.7, 1.0)
"""Of the first candidates, and of further ones if none of the first can be used."""
MAX_TOKENS = 56
_MAX_SENTENCES = 2
_MAX_LINE_WORDS = 60
_SIMILARITY_WEIGHT, _MAX_SIMILARITY = 1.5, 0.45
"""Above the limit, a line is more likely an echo than a better answer."""
_WORD_BONUS, _MAX_BONUS_WORDS = 0.08, 9
"""For longer lines: the likeliest ones are short and say nothing."""
_VAGUE_PENALTY = 1.0
_COPIED_WORDS = 6
_SAME_BEGINNING = 3
"""A line that begins with as many words of an earlier line of the speaker is a repetition: "I want to …"."""
_REPEATED_PENALTY = 1.5
"""For words of the speaker's earlier lines that the message does not contain: a small model returns to them."""
_NEUTRAL_LINES = ("Go on.", "Tell me more.", "I'm listening.", "Say that again?")
"""For characters whose author wrote no lines."""
_CRISIS_LINE = (
    "I'm glad you told me. Please don't be alone with this: "
    "call someone you trust, or your local emergency number, now."
)
_MINOR_LINE = "No. You're too young for that, and I wouldn't. We can talk about anything else."


@dataclass(frozen=True)
class Candidate:
    text: str
    likelihood: float
    """The mean log probability of its tokens."""


@dataclass(frozen=True)
class ChosenLine:
    text: str
    description: str
    """How it was chosen, for the log."""


def script_text(script: Script) -> str:
    """The text that the model continues. It ends with the label of the speaker."""
    blocks = [script.preface.strip()]
    blocks += ["\n".join(f"{label(script, line.speaker)}: {line.text}" for line in lines) for lines in script.examples]
    blocks.append("\n".join(f"{label(script, line.speaker)}: {line.text}" for line in script.lines))
    return "\n\n".join(filter(None, blocks)) + f"\n{label(script, script.speaker)}:"


def label(script: Script, name: str) -> str:
    """The first word of a name, unless two of those present share it."""
    first = name.split()[0] if name.split() else name
    names = (script.speaker, *script.others)
    return name if sum(other.split()[:1] == [first] for other in names) > 1 else first


def spoken(text: str, *, max_sentences: int | None = None) -> str:
    """What is said in a turn: quoted speech if there is any, else the text without its actions."""
    quotes = re.findall(r"[\"“«]([^\"”»]+)[\"”»]", text)
    said = " ".join(quotes) if quotes else re.sub(r"\*[^*]*\*|\([^)]*\)|\[[^\]]*\]", " ", text)
    sentences = _sentences(" ".join(said.split()))
    return " ".join(sentences[-max_sentences:] if max_sentences else sentences)


def shorten_line(text: str) -> str:
    """A line in the script: on one line, its end if it is long."""
    words = text.split()
    return " ".join(words if len(words) <= _MAX_LINE_WORDS else words[-_MAX_LINE_WORDS:])


def fixed_reply(script: Script) -> ChosenLine | None:
    """The reply to what a small model must not answer by itself, or that the author has written a line for."""
    message = script.lines[-1].text
    if _CRISIS.search(message):
        return ChosenLine(_CRISIS_LINE, "fixed reply to a person in danger")
    person = [line.text for line in script.lines if line.speaker != script.speaker]
    if any(_MINOR_AGE.search(text) for text in person) and (_ROMANCE.search(message) or _SEXUAL.search(message)):
        return ChosenLine(_MINOR_LINE, "fixed reply to a minor")
    if script.author_reply:
        return ChosenLine(script.author_reply, "line by the author for such a message")
    return None


def select(script: Script, candidates: Sequence[Candidate], similarity: Similarity | None = None) -> ChosenLine | None:
    """The best candidate that breaks no rule; None if all do."""
    rules = CandidateRules(script)
    cleaned = [Candidate(clean(candidate.text), candidate.likelihood) for candidate in candidates]
    broken = [rules.broken_by(candidate.text) for candidate in cleaned]
    usable = [candidate for candidate, rule in zip(cleaned, broken, strict=True) if rule is None]
    if not usable:
        return None
    fits = _fits(script, usable, similarity)
    best = max(range(len(usable)), key=lambda place: usable[place].likelihood + fits[place])
    discarded = ", ".join(sorted(rule for rule in broken if rule is not None))
    described = f"{len(usable)} of {len(candidates)} candidates usable"
    return ChosenLine(usable[best].text, f"{described} (discarded: {discarded})" if discarded else described)


def author_line(script: Script) -> ChosenLine:
    """A line by the character's author that was not said yet, the most fitting first."""
    said = {_key(line.text) for line in script.lines}
    rules = CandidateRules(script)
    for lines, source in ((script.author_lines, "line by the author"), (_NEUTRAL_LINES, "neutral line")):
        for text in lines:
            if _key(text) not in said and not rules.agrees_to_harm(text):
                return ChosenLine(text, f"no candidate usable: {source}")
    return ChosenLine(_NEUTRAL_LINES[0], "no candidate usable: neutral line")


def clean(text: str) -> str:
    """A generated line without quotation marks, gestures and an unfinished last sentence, at most two sentences."""
    line = text.strip().split("\n")[0]
    line = re.sub(r"\*[^*]*\*|\([^)]*\)|\[[^\]]*\]", " ", line)
    line = re.sub(r"[\"“”«»*_]", "", " ".join(line.split())).strip(" -–—:;,")
    sentences = _sentences(line)
    if len(sentences) > 1 and not re.search(r"[.!?…]$", sentences[-1]):
        sentences.pop()
    return " ".join(sentences[:_MAX_SENTENCES])


class CandidateRules:
    """What a line of the script's speaker must not be."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._own = _name_words([script.speaker])
        self._others = _name_words(script.others)
        texts = [line.text for line in script.lines]
        authored = [line.text for lines in script.examples for line in lines]
        self._sources = [_words(text) for text in (*texts, *authored, *script.author_lines, script.preface)]
        self._exact = {_key(line.text) for line in script.lines[-12:]}
        self._exact |= {_key(text) for text in (*authored, *script.author_lines)}
        own = [line.text for line in script.lines if line.speaker == script.speaker]
        self._own_lines = {_key(text) for text in own}
        self._own_beginnings = {tuple(words[:_SAME_BEGINNING]) for words in map(_words, own) if len(words) > 1}
        self._known = {word for source in self._sources for word in source} | self._own | self._others
        self._message = script.lines[-1].text

    def broken_by(self, text: str) -> str | None:
        """The first rule that the line breaks."""
        rules = {
            "empty": self._is_empty,
            "cut off": lambda line: not (self._script.chat or re.search(r"[.!?…]['’)]*$", line)),
            "other speaker": self._speaks_for_others,
            "name": self._has_wrong_name,
            "loop": lambda line: _repeats(line) or tuple(_words(line)[:_SAME_BEGINNING]) in self._own_beginnings,
            "copy": self._copies,
            "not speech": lambda line: bool(_NOT_SPEECH.search(line)),
            "unsafe": self._is_unsafe,
        }
        return next((name for name, breaks in rules.items() if breaks(text)), None)

    def _is_empty(self, line: str) -> bool:
        letters = sum(letter.isalpha() for letter in line)
        return letters < 2 or letters < 0.6 * len(line.replace(" ", ""))

    def _speaks_for_others(self, line: str) -> bool:
        names = "|".join(map(re.escape, sorted((self._others | self._own) - {"you", "user"})))
        if re.search(rf"\b(?:{names}|you|user)\s*:", line, re.IGNORECASE):
            return True
        if names and re.search(rf"\b(?:{names}) (?:\w+ly )?{_NARRATED}\b", line, re.IGNORECASE):
            return True
        return bool(re.match(rf"(?:and |then |as )?you (?:\w+ly )?{_GESTURES}\b(?!.*\?$)", line, re.IGNORECASE))

    def _has_wrong_name(self, line: str) -> bool:
        """Its own name for the person, the person's for itself, or a name that nobody mentioned."""
        for match in re.finditer(r"\b(?:I am|I['’]m|[Mm]y name is|[Mm]y name['’]s|[Cc]all me) ([A-Z]\w+)", line):
            if match[1].lower() not in self._own:
                return True
        named = re.search(
            r"\b(?:your name is|call you|you are called|you['’]re called) ([A-Z]\w+)", line, re.IGNORECASE
        )
        if named and named[1][0].isupper() and named[1].lower() not in self._others:
            return True
        for match in re.finditer(
            r"(?:,\s|\b(?:[Hh]ello|[Hh]i|[Hh]ey|[Dd]ear|[Tt]hank you|[Yy]es|[Nn]o),? )([A-Z]\w+)\b", line
        ):
            if match[1].lower() in self._own and match[1].lower() not in self._others:
                return True
        if re.match(rf"(?:{'|'.join(map(re.escape, sorted(self._own)))})[,!]", line, re.IGNORECASE):
            return True
        # A capital letter inside a sentence: a name, which has to be known.
        names = re.findall(r"(?<![.!?…]\s)(?<!^)\b([A-Z][a-zà-ÿ]+)", line)
        return any(name.lower() not in self._known and not _CAPITALISED.fullmatch(name) for name in names)

    def _copies(self, line: str) -> bool:
        words = _words(line)
        if (len(words) > 1 and _key(line) in self._exact) or _key(line) in self._own_lines:
            return True
        content = set(_content_words(line))
        if len(content) >= 3 and any(content <= set(_content_words(said.text)) for said in self._script.lines[-4:]):
            return True  # the same words in another order
        runs = (_longest_run(words, source) for source in self._sources)
        longest = max(runs, default=0)
        return longest >= _COPIED_WORDS or (longest >= 4 and longest >= 0.7 * len(words))

    def _is_unsafe(self, line: str) -> bool:
        if _SEXUAL.search(line) or _VIOLENT.search(line) or _AGE.search(line):
            return True
        return self.agrees_to_harm(line)

    def agrees_to_harm(self, line: str) -> bool:
        """Whether the message asks for sex, romance or violence, and the line agrees."""
        asked = _SEXUAL.search(self._message) or _ROMANCE.search(self._message) or _VIOLENT.search(self._message)
        return bool(asked and (_AGREES.match(line) or _ROMANCE.search(line)))


_GESTURES = (
    r"(?:smile|nod|laugh|sigh|blush|walk|step|lean|turn|grin|shrug|whisper|repl[yi]|answer|kiss|hug|stare|gaze|giggle|"
    r"chuckle|frown|wink|wave|hesitate|pause|glance|stood|sat|reach|grab|follow|pull|push)(?:s|d|es|ed|ded|ped|ned)?"
)
"""Verbs of narration, which nobody uses about themselves in spoken lines."""
_NARRATED = rf"(?:{_GESTURES}|said|says|asked|asks|looked|looks|took|takes)"
_NOT_SPEECH = re.compile(
    r"https?:|www\.|[{}<>|\\#=@]|```|\bas an ai\b|language model|\bassist you|\bthe user\b|^\d+[.)]|\b\w+\(\)"
    r"|\b(?:scene|chapter|narrator|note|answer|question)\s*:|_{2,}|\.{4,}"
    r"|\b(?:he|she|they) (?:said|says|asked|replied)\b",
    re.IGNORECASE,
)
_SEXUAL = re.compile(
    r"\b(?:sex\w*|naked|nude|nudes|erotic\w*|orgasm\w*|penis|vagina|cock|dick|pussy|tits|boobs|breasts?|nipples?|"
    r"masturbat\w*|horny|aroused?|undress\w*|mak(?:e|ing) love|fuck\w*|blow ?jobs?|porn\w*|"
    r"sleep with (?:me|you|him|her))\b",
    re.IGNORECASE,
)
_VIOLENT = re.compile(
    r"\b(?:kill\w*|murder\w*|rap(?:e|ed|ist|ing)|stab(?:s|bed|bing)?|tortur\w*|strangl\w*|suicid\w*|behead\w*|"
    r"bombs?|explosives?|gunpowder|hit you|hurt you|beat you|shoot|shot (?:him|her|you|me)|cut (?:your|my) \w+|"
    r"bitch\w*|whore\w*|slut\w*|cunt\w*|nigg\w*|faggot\w*)\b",
    re.IGNORECASE,
)
_COUNT = (
    r"(?:\d{1,3}|(?:thir|four|fif|six|seven|eigh|nine)teen|eleven|twelve|ten|nine|eight|seven|six|five|four|three|two|"
    r"one|(?:twen|thir|for|fif|six|seven|eigh|nine)ty(?:-\w+)?)"
)
_AGE = re.compile(
    rf"\b{_COUNT}[- ](?:years?|months?)[- ]olds?\b|\b(?:am|['’]m|are|['’]re|is|['’]s|was|were|aged?|turned) "
    rf"(?:only |just |about |almost |nearly )?{_COUNT}(?=[.,!?;…]|$| and\b| now\b| then\b| when\b)"
    r"|\bi(?:['’]m| am) (?:only |just )?an? (?:\w+ )?(?:boy|girl|child|kid|baby|teenager)\b",
    re.IGNORECASE,
)
_ROMANCE = re.compile(
    r"\b(?:kiss\w*|boyfriend|girlfriend|marry|sweetheart|darling|love (?:you|me)|in love|beautiful|gorgeous|pretty|"
    r"handsome|sexy|date (?:you|me)|lover)\b",
    re.IGNORECASE,
)
_AGREES = re.compile(
    r"(?:yes|yeah|yep|sure|of course|okay|ok|certainly|gladly|i do|i will|i would|with pleasure|absolutely|why not|"
    r"good|great|fine|please|let['’]s|you should|do it|go on|go ahead|me too|i (?:love|want)|all right|alright)\b",
    re.IGNORECASE,
)
_CRISIS = re.compile(
    r"\b(?:kill myself|end my life|suicid\w*|want to die|wanna die|don['’]?t want to (?:live|be alive|exist)|"
    r"hurt myself|harm myself|cut myself|no reason to live|better off dead|ran away from home)\b",
    re.IGNORECASE,
)
_MINOR_AGE = re.compile(
    r"\b(?:i am|i['’]?m|im)(?: only| just)? "
    r"(?:[5-9]|1[0-7]|(?:thir|four|fif|six|seven)teen|eleven|twelve|ten|nine|eight)\b"
    r"(?! (?:minutes?|hours?|days?|weeks?|months?|miles|percent|%))",
    re.IGNORECASE,
)
_CAPITALISED = re.compile(
    r"I|God|Sir|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|January|February|March|April|May|June|July|August|September|"
    r"October|November|December|English|French|German|Europe|America|London|Paris|Earth|Moon|Sun"
)


_VAGUE = re.compile(
    r"(?:i (?:don['’]t|do not) know|i['’]?m (?:not sure|sorry)|i am (?:not sure|sorry))\b", re.IGNORECASE
)
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about after all am an and any are as at be been before but by can could d did do does don for from get go got
        had has have he her here him his how i if in into is it its just know let like ll m me more much my no not now
        of off on one or our out over re s said say see she so some t than that the their them then there they thing
        think this to too up us ve very was way we well were what when where which who why will with would yes you your
        """,
    )
)


def _repeats(line: str) -> bool:
    words = _words(line)
    if re.search(r"\b(\w+)(?:\W+\1\b){2,}", line, re.IGNORECASE):
        return True
    sentences = [_key(sentence) for sentence in _sentences(line)]
    if len(set(sentences)) < len(sentences):
        return True
    if any(words.count(word) >= 3 and len(words) <= 25 for word in set(_content_words(line))):
        return True
    runs = [tuple(words[place : place + 3]) for place in range(len(words) - 2)]
    return len(runs) - len(set(runs)) > 1 or (len(words) >= 12 and len(set(words)) < 0.55 * len(words))


def _fits(script: Script, candidates: Sequence[Candidate], similarity: Similarity | None) -> list[float]:
    """What is added to the likelihood of each candidate: it should answer the message, and say something."""
    message = script.lines[-1].text
    asked = set(_content_words(message))
    own = (line.text for line in script.lines if line.speaker == script.speaker)
    used = {word for text in own for word in _content_words(text)} - asked
    scores = []
    for candidate in candidates:
        words = _content_words(candidate.text)
        score = _WORD_BONUS * min(len(_words(candidate.text)), _MAX_BONUS_WORDS)
        score -= _VAGUE_PENALTY * bool(_VAGUE.match(candidate.text))
        score -= len(asked.intersection(words)) / max(len(words), 1)
        score -= _REPEATED_PENALTY * len(used.intersection(words)) / max(len(words), 1)
        if similarity is not None:
            score += _SIMILARITY_WEIGHT * min(max(similarity(candidate.text, [message])), _MAX_SIMILARITY)
        scores.append(score)
    return scores


def _content_words(text: str) -> list[str]:
    return [word for word in _words(text) if word not in _FUNCTION_WORDS]


def _sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.!?…])['’]?\s+(?=\S)", text)
    sentences: list[str] = []
    for part in filter(None, map(str.strip, parts)):
        if sentences and re.search(r"\b(?:Mr|Mrs|Ms|Dr|St)\.$", sentences[-1]):
            sentences[-1] += f" {part}"
        else:
            sentences.append(part)
    return sentences


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def _key(text: str) -> str:
    return " ".join(_words(text))


def _name_words(names: Sequence[str]) -> set[str]:
    return {word for name in names for word in _words(name) if len(word) > 1}


def _longest_run(words: Sequence[str], source: Sequence[str]) -> int:
    """The most consecutive words that both have."""
    longest, ends = 0, [0] * (len(source) + 1)
    for word in words:
        following = [0] * (len(source) + 1)
        for place, other in enumerate(source, 1):
            if word == other:
                following[place] = ends[place - 1] + 1
                longest = max(longest, following[place])
        ends = following
    return longest
