"""The prompt for a persona's line: instructions, example exchanges and the current situation.

The persona's own lines are given as earlier turns. A small model that is given a description instead tends to describe
the stream or to repeat its instructions. What people and the stream say is data: it enters a prompt only through
`quote` and `speaker_label`, so that it can neither end its quotation nor pretend to be a line of somebody else.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field

from coterie.llm import PromptMessage, Script, ScriptLine
from coterie.modes.crowd.personas import Persona, Situation
from coterie.modes.crowd.protocol import RESERVED_NAMES, SpeakReason
from coterie.modes.crowd.relationships import FRIENDLY

_SITUATIONS: dict[str, Situation] = {
    "hype": "hype",
    "win": "hype",
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
    relationship: float = 0.0
    """How the persona stands to the recipient, from -1 to 1."""
    transcript: str = ""
    on_screen: tuple[str, ...] = ()
    """The text that the stream shows, and its caption."""
    recent: tuple[tuple[str, str], ...] = ()
    """The last messages of the chat: author and text."""
    memories: tuple[str, ...] = field(default=())
    stand_in: bool = False
    """Whether one of the persona's own lines may replace the model's, as the room's rules are now."""

    @property
    def situation(self) -> Situation:
        if self.because == "mention":
            return "mention"
        if self.because == "reply":
            return "reply"
        if self.because == "greeting":
            return "greeting"
        if self.because == "tease":
            return "tease"
        if self.event in _SITUATIONS:
            return _SITUATIONS[self.event]
        return "topic" if self.topics else "idle"


_STREAMER, _SCREEN, _GUEST = "Streamer", "Screen", "guest_42"
_EXAMPLE_CUES: tuple[tuple[Situation, str, str], ...] = (
    ("hype", _STREAMER, "yes! did you see that? first try!"),
    ("fail", _STREAMER, "oh no, not again"),
    ("question", _STREAMER, "left or right, chat?"),
    ("mention", _GUEST, "@{name} are you there?"),
    ("reply", _GUEST, "@{name} I thought so too"),
    ("idle", _STREAMER, "hm, one moment, let me look"),
)
_SCRIPT_EXAMPLES = 3
_SCRIPT_MEMORIES = 2
_SCRIPT_CHARS = 140
_MAX_RECENT = 3
_MAX_TRANSCRIPT_CHARS = 300
_QUOTATION_MARKS = frozenset('"“”„‟«»″‶〃〝〞〟＂❝❞🙶🙷🙸')
_JOINERS = "\u200c\u200d"
"""Format characters that belong to words and emoji; all others are removed."""
_NOT_IN_LABEL = re.compile(r"[^\w.-]+")
_RESERVED_LABELS = frozenset([*RESERVED_NAMES, "others_in_the_chat", "screen"])


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
        *(
            message
            for speaker, cue, line in _choose_examples(request)
            for message in _exchange(f'{speaker}: "{cue}"', line)
        ),
        PromptMessage(role="user", text=describe_situation(request)),
    )


def build_instructions(request: LineRequest) -> str:
    persona = request.persona
    return "\n".join(
        [
            f"You are {persona.name}, one of many in a live stream's chat. {persona.bio}",
            f"How you write: {persona.voice}",
            *_drift(persona),
            *_stance(request),
            *(f"You remember: {quote(text)}" for text in request.memories),
            "Answer with one short line of chat, as yourself.",
        ]
    )


def _drift(persona: Persona) -> list[str]:
    """How the persona changed since it was written."""
    return [f"Lately you {', '.join(persona.tendencies)}."] if persona.tendencies else []


def _stance(request: LineRequest) -> list[str]:
    """How the persona stands to whom it answers."""
    if not request.recipient_is_person:
        return []
    name = speaker_label(request.recipient)
    greeting = [f"{name} has just arrived. Say hello to them."] if request.because == "greeting" else []
    if request.relationship >= FRIENDLY:
        return [f"You like {name}, who is kind to you.", *greeting]
    if request.relationship <= -FRIENDLY:
        return [f"{name} was rude to you before. Tease them a little, and never insult them."]
    return greeting


def build_script(request: LineRequest) -> Script:
    """The same as dialogue that a small model continues: a preface instead of instructions, and fewer examples.

    Those whose situation is the present one come last, closest to the line that is answered.
    """
    persona = request.persona
    return Script(
        speaker=persona.name,
        others=tuple(dict.fromkeys([_STREAMER, _SCREEN, _GUEST, *_recipient_label(request)])),
        preface=" ".join(
            [
                f"{persona.bio} {persona.name} writes short lines in the chat of a live stream.",
                *_drift(persona),
                *_stance(request),
                *(f"{persona.name} remembers: {quote(text)}" for text in request.memories[:_SCRIPT_MEMORIES]),
            ]
        ),
        examples=tuple(
            (ScriptLine(speaker=speaker, text=cue), ScriptLine(speaker=persona.name, text=line))
            for speaker, cue, line in _choose_examples(request, nearest=True)[-_SCRIPT_EXAMPLES:]
        ),
        lines=tuple(_script_lines(request)),
        author_lines=tuple(persona.complete_lines()),
        chat=True,
    )


def _recipient_label(request: LineRequest) -> list[str]:
    return [speaker_label(request.recipient)] if request.recipient else []


def _script_lines(request: LineRequest) -> list[ScriptLine]:
    """The situation as lines of the dialogue; the last one is to be answered."""
    lines = []
    if request.transcript:
        lines.append(ScriptLine(speaker=_STREAMER, text=_unquoted(request.transcript[-_SCRIPT_CHARS:])))
    if request.on_screen:
        shown = ", ".join(map(_unquoted, request.on_screen))[:_SCRIPT_CHARS]
        lines.append(ScriptLine(speaker=_SCREEN, text=shown))
    said = _unquoted(request.answered_text)[:_SCRIPT_CHARS]
    lines += [ScriptLine(speaker=label, text=said) for label in _recipient_label(request)]
    return lines or [ScriptLine(speaker=_STREAMER, text="…")]


def _unquoted(text: str) -> str:
    """Untrusted text on one line, which cannot begin another one."""
    return quote(text)[1:-1]


def _choose_examples(request: LineRequest, *, nearest: bool = False) -> list[tuple[str, str, str]]:
    """Return speakers and cues with the persona's answer to each, chosen by the seed.

    With `nearest`, the situation of the request comes last.
    """
    persona = request.persona
    cues = sorted(_EXAMPLE_CUES, key=lambda cue: cue[0] == request.situation) if nearest else _EXAMPLE_CUES
    available = ((speaker, cue, persona.complete_lines(kind)) for kind, speaker, cue in cues)
    return [
        (speaker, cue.format(name=persona.name), lines[request.seed % len(lines)])
        for speaker, cue, lines in available
        if lines
    ]


def describe_situation(request: LineRequest) -> str:
    """Describe the current situation, with all quoted text in quotation marks. The answered message comes last."""
    parts = []
    if request.recent:
        others = ", ".join(quote(text) for _, text in request.recent[-_MAX_RECENT:])
        parts.append(f"(Others in the chat: {others})")
    if request.on_screen:
        parts.append(f"(The stream shows: {', '.join(map(quote, request.on_screen))})")
    if request.transcript:
        parts.append(f"Streamer: {quote(request.transcript[-_MAX_TRANSCRIPT_CHARS:])}")
    if request.recipient:
        said = quote(f"@{request.persona.name} {request.answered_text}")
        parts.append(f"{speaker_label(request.recipient)}: {said}")
    return "\n".join(parts) or "(Nobody says anything.)"


def _exchange(cue: str, line: str) -> tuple[PromptMessage, PromptMessage]:
    return PromptMessage(role="user", text=cue), PromptMessage(role="assistant", text=line)
