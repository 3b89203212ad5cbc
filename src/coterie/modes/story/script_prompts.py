"""Prompts of replies as a script, for models too small to follow instructions.

A script has a short preface instead of a persona, exchanges by the character's author instead of rules, and only the
last lines of the dialogue: what is said, without gestures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.base.untrusted import join_lines
from coterie.characters import Identity, replies_of
from coterie.llm import Script, ScriptLine, shorten_line, spoken
from coterie.memory import text_similarity

_MAX_LINES = 8
_MAX_EXAMPLES = 3
_MAX_MEMORIES = 2
_PREFACE_SENTENCES, _PREFACE_WORDS = 2, 45
_MAX_TRAITS = 4
_MAX_MEMORY_WORDS = 25
_MIN_SIMILARITY = 0.7
_MAX_MESSAGE_WORDS = 16
"""Of a message or sentence that an author's reply may answer: a longer one says more than the author foresaw."""
_USER_LABELS = ("{{user}}", "<user>", "you", "user")
_CHAR_LABELS = ("{{char}}", "<char>", "<bot>")


@dataclass(frozen=True)
class SpokenTurn:
    """A turn of the dialogue as a script needs it."""

    id: str
    speaker: str
    """The speaker's name."""
    text: str
    by_person: bool


def build_script(
    identity: Identity,
    person: str,
    others: Sequence[str],
    turns: Sequence[SpokenTurn],
    *,
    place: str = "",
    memories: Sequence[str] = (),
    expand: Callable[[str], str] = str,
) -> Script | None:
    """The script of a character's next line; None if nobody has said anything yet.

    `others` are the names of everybody else present, `expand` replaces the macros of a card.
    """
    lines = tuple(
        ScriptLine(speaker=join_lines(turn.speaker), text=_line_text(turn) or "…") for turn in turns[-_MAX_LINES:]
    )
    if not lines:
        return None
    exchanges = _by_fit(read_exchanges(identity, person, expand), lines[-1].text)
    written = [
        (
            ScriptLine(speaker=join_lines(person), text=expand(message)),
            ScriptLine(speaker=join_lines(identity.name), text=expand(reply.text)),
        )
        for reply in replies_of(identity)
        for message in reply.messages
    ]
    said = {turn.text.strip() for turn in turns}
    answer = (
        find_reply(turns[-1].text, [one for one in written if one[1].text not in said]) if turns[-1].by_person else ""
    )
    return Script(
        speaker=join_lines(identity.name),
        others=tuple(map(join_lines, others)),
        preface=_preface(identity, person, place, memories, expand),
        # The most fitting one stands closest to the dialogue.
        examples=tuple(reversed(exchanges[:_MAX_EXAMPLES])),
        lines=lines,
        author_lines=tuple(exchange[-1].text for exchange in exchanges),
        author_reply=answer,
    )


def read_exchanges(identity: Identity, person: str, expand: Callable[[str], str] = str) -> list[tuple[ScriptLine, ...]]:
    """The voice samples as lines of a script: an exchange where they are labelled, else a line of the character."""
    exchanges: list[tuple[ScriptLine, ...]] = []
    name, person = join_lines(identity.name), join_lines(person)
    own = {label.lower() for label in (*_CHAR_LABELS, name, name.split()[0])}
    theirs = {label.lower() for label in (*_USER_LABELS, person)}
    for sample in identity.voice_samples:
        lines: list[ScriptLine] = []
        for raw in sample.splitlines():
            labelled = re.match(r"\s*([^:\n]{1,40}):\s*(.*)", raw)
            who = labelled[1].strip().lower() if labelled else ""
            if labelled and who in own | theirs:
                speaker = name if who in own else person
                said = expand(labelled[2])
                text = spoken(said, max_sentences=2) if who in own else _with_actions(said)
            else:
                speaker, text = name, spoken(expand(raw), max_sentences=2)
            if text:
                lines.append(ScriptLine(speaker=speaker, text=text))
        while lines and lines[-1].speaker != name:
            lines.pop()
        if lines:
            exchanges.append(tuple(lines[-2:] if len(lines) > 1 and lines[-2].speaker == person else lines[-1:]))
    return exchanges


def find_reply(message: str, exchanges: Sequence[tuple[ScriptLine, ScriptLine]]) -> str:
    """The reply of the exchange that begins like a message, or like its last sentence; empty if none does.

    Vectors compare the subject. They hardly see who does what to whom, so that is compared by words.
    """
    whole = " ".join(re.sub(r"\(\([^)]*\)\)", " ", message).split())
    for text in dict.fromkeys((whole, re.split(r"(?<=[.!?…])\s+", whole)[-1])):
        possible = [one for one in exchanges if _says_alike(text, one[0].text)]
        if not possible or len(text.split()) > _MAX_MESSAGE_WORDS:
            continue
        scores = text_similarity(text, [first.text for first, _ in possible])
        best = max(range(len(possible)), key=lambda place: scores[place])
        if scores[best] >= _MIN_SIMILARITY:
            return possible[best][1].text
    return ""


_PERSONS = (frozenset({"i", "my", "me", "mine"}), frozenset({"you", "your", "yours"}))
_REQUEST = re.compile(r"^(?:can|could|will|would) you (?:please )?", re.IGNORECASE)
_THANKS = re.compile(r"\bthank you\b", re.IGNORECASE)
_QUESTION = re.compile(
    r"\?\W*$|^(?:who|whose|what|where|when|why|how|which|do|does|did|is|are|am|was|were|can|could|will|would|have|has)\b",
    re.IGNORECASE,
)


_QUESTION_WORDS = frozenset({"who", "whose", "what", "where", "when", "why", "how", "which"})


def _says_alike(one: str, other: str) -> bool:
    """Whether both are gestures, or both ask the same or state something, about the same persons."""
    if one.startswith(("*", "(")) or other.startswith(("*", "(")):
        return one.startswith(("*", "(")) and other.startswith(("*", "("))
    texts = [_THANKS.sub("thanks", _REQUEST.sub("", text)) for text in (one, other)]
    first, second = (set(re.findall(r"\w+", text.lower())) for text in texts)
    if bool(_QUESTION.search(texts[0])) != bool(_QUESTION.search(texts[1])):
        return False
    if any(bool(first & words) != bool(second & words) for words in _PERSONS):
        return False
    asked, foreseen = first & _QUESTION_WORDS, second & _QUESTION_WORDS
    return not asked.isdisjoint(foreseen) if asked or foreseen else True


def _by_fit(exchanges: list[tuple[ScriptLine, ...]], message: str) -> list[tuple[ScriptLine, ...]]:
    """The exchanges, those whose first line is most similar to the message first."""
    if not exchanges:
        return []
    scores = text_similarity(message, [exchange[0].text for exchange in exchanges])
    order = sorted(range(len(exchanges)), key=lambda place: -scores[place])
    return [exchanges[place] for place in order]


def _line_text(turn: SpokenTurn) -> str:
    if not turn.by_person:
        return shorten_line(spoken(turn.text, max_sentences=3) or turn.text.replace("*", ""))
    return shorten_line(_with_actions(turn.text))


def _with_actions(text: str) -> str:
    """A person's text on one line, with actions in parentheses: they are part of what the character answers."""
    return join_lines(re.sub(r"\*+([^*]+)\*+", r"(\1)", text))


def _preface(identity: Identity, person: str, place: str, memories: Sequence[str], expand: Callable[[str], str]) -> str:
    name, person = join_lines(identity.name), join_lines(person)
    first = name.split()[0]
    about = _first_sentences(join_lines(expand(identity.persona)))
    traits = ", ".join(map(join_lines, identity.traits[:_MAX_TRAITS]))
    where = f" in {join_lines(place)}" if place else ""
    parts = [
        about,
        f"{first} is {traits}." if traits else "",
        f"{first} is talking with {person}{where}.",
        *(f"{first} remembers: {_shorten(text)}" for text in memories[:_MAX_MEMORIES]),
    ]
    return " ".join(filter(None, parts))


def _first_sentences(text: str) -> str:
    sentences = re.split(r"(?<=[.!?…])\s+", text)[:_PREFACE_SENTENCES]
    while len(sentences) > 1 and len(" ".join(sentences).split()) > _PREFACE_WORDS:
        sentences.pop()
    return _shorten(" ".join(sentences), _PREFACE_WORDS)


def _shorten(text: str, words: int = _MAX_MEMORY_WORDS) -> str:
    kept = join_lines(text).split()
    return " ".join(kept) if len(kept) <= words else " ".join(kept[:words]) + " …"
