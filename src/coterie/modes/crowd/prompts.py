"""The prompt for a persona's line: instructions, example exchanges and the current situation.

The persona's own lines are given as earlier turns. A small model that is given a description instead tends to describe
the stream or to repeat its instructions. What people and the stream say is data: it enters a prompt only through
`quote` and `speaker_label`, so that it can neither end its quotation nor pretend to be a line of somebody else.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

from coterie.llm import PromptMessage
from coterie.modes.crowd.personas import Persona, Situation
from coterie.modes.crowd.protocol import RESERVED_NAMES, SpeakReason

_SITUATIONS: dict[str, Situation] = {
    "hype": "hype",
    "clutch": "hype",
    "raid": "hype",
    "fail": "fail",
    "chat_question": "question",
}


@dataclass(frozen=True)
class LineRequest:
    """What a line is to be written from."""

    persona: Persona
    tick: int
    because: SpeakReason
    seed: int
    event: str = ""
    about: str = ""
    """What the event was about, in a few words."""
    topics: tuple[str, ...] = ()
    """Keywords of the stream, the persona's interests first."""
    recipient: str = ""
    """The name of whom it answers; empty if nobody."""
    answered_text: str = ""
    """The message that is answered."""
    recipient_is_person: bool = False
    transcript: str = ""
    recent: tuple[tuple[str, str], ...] = ()
    """The last messages of the chat: author and text."""
    memories: tuple[str, ...] = field(default=())

    @property
    def situation(self) -> Situation:
        if self.because == "mention":
            return "mention"
        if self.because == "reply":
            return "reply"
        if self.event in _SITUATIONS:
            return _SITUATIONS[self.event]
        return "topic" if self.topics else "idle"


_EXAMPLE_CUES: tuple[tuple[Situation, str], ...] = (
    ("hype", 'Streamer: "yes! did you see that? first try!"'),
    ("fail", 'Streamer: "oh no, not again"'),
    ("question", 'Streamer: "left or right, chat?"'),
    ("mention", 'guest_42: "@{name} are you there?"'),
    ("reply", 'guest_42: "@{name} I thought so too"'),
    ("idle", 'Streamer: "hm, one moment, let me look"'),
)
_MAX_RECENT = 3
_MAX_TRANSCRIPT_CHARS = 300
_QUOTATION_MARKS = frozenset('"“”„‟«»″‶〃〝〞〟＂❝❞🙶🙷🙸')
_JOINERS = "\u200c\u200d"
"""Format characters that belong to words and emoji; all others are removed."""
_NOT_IN_LABEL = re.compile(r"[^\w.-]+")
_RESERVED_LABELS = frozenset([*RESERVED_NAMES, "others_in_the_chat"])


def quote(text: str) -> str:
    """Untrusted text as one quotation: on one line, without quotation marks, control and direction characters."""
    return f'"{" ".join("".join(map(_quotable, text)).split())}"'


def _quotable(character: str) -> str:
    if character in _QUOTATION_MARKS:
        return "'"
    category = unicodedata.category(character)
    if category == "Cf":
        return character if character in _JOINERS else ""
    return " " if category in ("Cc", "Cs", "Zl", "Zp") else character


def speaker_label(name: str) -> str:
    """A person's name before what they say. It cannot be mistaken for the streamer or a role of the prompt."""
    label = _NOT_IN_LABEL.sub("_", unicodedata.normalize("NFKC", name)).strip("_") or "guest"
    return f"guest_{label}" if label.casefold() in _RESERVED_LABELS else label


def build_messages(request: LineRequest) -> tuple[PromptMessage, ...]:
    return (
        PromptMessage(role="system", text=build_instructions(request)),
        *(message for cue, line in choose_examples(request) for message in _exchange(cue, line)),
        PromptMessage(role="user", text=describe_situation(request)),
    )


def build_instructions(request: LineRequest) -> str:
    persona = request.persona
    return "\n".join(
        [
            f"You are {persona.name}, one of many in a live stream's chat. {persona.bio}",
            f"How you write: {persona.voice}",
            *(f"You remember: {quote(text)}" for text in request.memories),
            "Answer with one short line of chat, as yourself.",
        ]
    )


def choose_examples(request: LineRequest) -> list[tuple[str, str]]:
    """Return cues with the persona's answer to each, chosen by the seed."""
    persona = request.persona
    available = ((cue, persona.complete_lines(kind)) for kind, cue in _EXAMPLE_CUES)
    return [(cue.format(name=persona.name), lines[request.seed % len(lines)]) for cue, lines in available if lines]


def describe_situation(request: LineRequest) -> str:
    """Describe the current situation, with all quoted text in quotation marks. The answered message comes last."""
    parts = []
    if request.recent:
        others = ", ".join(quote(text) for _, text in request.recent[-_MAX_RECENT:])
        parts.append(f"(Others in the chat: {others})")
    if request.transcript:
        parts.append(f"Streamer: {quote(request.transcript[-_MAX_TRANSCRIPT_CHARS:])}")
    if request.recipient:
        said = quote(f"@{request.persona.name} {request.answered_text}")
        parts.append(f"{speaker_label(request.recipient)}: {said}")
    return "\n".join(parts) or "(Nobody says anything.)"


def _exchange(cue: str, line: str) -> tuple[PromptMessage, PromptMessage]:
    return PromptMessage(role="user", text=cue), PromptMessage(role="assistant", text=line)
