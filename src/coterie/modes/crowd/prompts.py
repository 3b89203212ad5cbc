"""Everything a persona has in mind when it begins to write: what led to it, to whom, and what it could be about."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.llm.messages import PromptMessage
from coterie.modes.crowd.personas import Persona, Situation
from coterie.modes.crowd.protocol.messages import SpeakReason

_SITUATIONS: dict[str, Situation] = {
    "hype": "hype",
    "clutch": "hype",
    "raid": "hype",
    "fail": "fail",
    "chat_question": "question",
}


@dataclass(frozen=True)
class LineRequest:
    persona: Persona
    tick: int
    because: SpeakReason
    seed: int
    event: str = ""
    about: str = ""
    """What the event or the question was about, in a few words."""
    topics: tuple[str, ...] = ()
    """Words the stream is about, those this persona cares for first."""
    recipient: str = ""
    """Whom it answers."""
    answered_text: str = ""
    """What they said."""
    recipient_is_person: bool = False
    transcript: str = ""
    recent: tuple[tuple[str, str], ...] = ()
    """The last lines of the chat: who, and what."""
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


# What a model is told when a persona wants to speak: who it is, how it answered before, what was said just now. C7
#
# A persona's own lines stand in the talk as if it had just said them. That shows even a small model what a line of chat
# is; told about it, the same model describes the stream, or says its instructions back.


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


def build_messages(request: LineRequest) -> tuple[PromptMessage, ...]:
    return (
        PromptMessage(role="system", text=instructions(request)),
        *(message for cue, line in examples(request) for message in _exchange(cue, line)),
        PromptMessage(role="user", text=situation_text(request)),
    )


def instructions(request: LineRequest) -> str:
    persona = request.persona
    return "\n".join(
        [
            f"You are {persona.name}, one of many in a live stream's chat. {persona.bio}",
            f"How you write: {persona.voice}",
            *(f"You remember: {text}" for text in request.memories),
            "Answer with one short line of chat, as yourself.",
        ]
    )


def examples(request: LineRequest) -> list[tuple[str, str]]:
    """What somebody said, and how this persona answered: another of its lines each time."""
    persona = request.persona
    ready = ((cue, persona.complete_lines(kind)) for kind, cue in _EXAMPLE_CUES)
    return [(cue.format(name=persona.name), lines[request.seed % len(lines)]) for cue, lines in ready if lines]


def situation_text(request: LineRequest) -> str:
    """What is going on, as data: whatever people wrote stands in quotation marks. What is answered comes last."""
    told = []
    if request.recent:
        others = ", ".join(f'"{text}"' for _, text in request.recent[-_MAX_RECENT:])
        told.append(f"(Others in the chat: {others})")
    if request.transcript:
        told.append(f'Streamer: "{request.transcript[-_MAX_TRANSCRIPT_CHARS:]}"')
    if request.recipient:
        told.append(f'{request.recipient}: "@{request.persona.name} {request.answered_text}"')
    return "\n".join(told) or "(Nobody says anything.)"


def _exchange(cue: str, line: str) -> tuple[PromptMessage, PromptMessage]:
    return PromptMessage(role="user", text=cue), PromptMessage(role="assistant", text=line)
