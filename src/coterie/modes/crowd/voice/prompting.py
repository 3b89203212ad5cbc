"""What a model is told when a persona wants to speak: who it is, how it answered before, what was said just now. C7

A persona's own lines stand in the talk as if it had just said them. That shows even a small model what a line of chat
is; told about it, the same model describes the stream, or says its instructions back.
"""

from __future__ import annotations

from coterie.llm.messages import Message
from coterie.modes.crowd.personas.persona import Situation
from coterie.modes.crowd.voice.brief import Brief

_CUES: tuple[tuple[Situation, str], ...] = (
    ("hype", 'Streamer: "yes! did you see that? first try!"'),
    ("fail", 'Streamer: "oh no, not again"'),
    ("question", 'Streamer: "left or right, chat?"'),
    ("mention", 'guest_42: "@{name} are you there?"'),
    ("reply", 'guest_42: "@{name} I thought so too"'),
    ("idle", 'Streamer: "hm, one moment, let me look"'),
)
_OTHERS = 3
_LONGEST_TRANSCRIPT = 300


def conversation(brief: Brief) -> tuple[Message, ...]:
    return (
        Message(role="system", text=instructions(brief)),
        *(message for cue, line in examples(brief) for message in _exchange(cue, line)),
        Message(role="user", text=situation(brief)),
    )


def instructions(brief: Brief) -> str:
    persona = brief.persona
    return "\n".join(
        [
            f"You are {persona.name}, one of many in a live stream's chat. {persona.bio}",
            f"How you write: {persona.voice}",
            *(f"You remember: {text}" for text in brief.remembered),
            "Answer with one short line of chat, as yourself.",
        ]
    )


def examples(brief: Brief) -> list[tuple[str, str]]:
    """What somebody said, and how this persona answered: another of its lines each time."""
    persona = brief.persona
    ready = ((cue, persona.said(kind)) for kind, cue in _CUES)
    return [(cue.format(name=persona.name), lines[brief.seed % len(lines)]) for cue, lines in ready if lines]


def situation(brief: Brief) -> str:
    """What is going on, as data: whatever people wrote stands in quotation marks. What is answered comes last."""
    told = []
    if brief.recent:
        others = ", ".join(f'"{text}"' for _, text in brief.recent[-_OTHERS:])
        told.append(f"(Others in the chat: {others})")
    if brief.transcript:
        told.append(f'Streamer: "{brief.transcript[-_LONGEST_TRANSCRIPT:]}"')
    if brief.to:
        told.append(f'{brief.to}: "@{brief.persona.name} {brief.said}"')
    return "\n".join(told) or "(Nobody says anything.)"


def _exchange(cue: str, line: str) -> tuple[Message, Message]:
    return Message(role="user", text=cue), Message(role="assistant", text=line)
