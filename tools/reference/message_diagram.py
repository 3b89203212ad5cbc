"""docs/img/message.svg: the way of a message, from a person's words to the reply on every surface.

Each step names what does it. The names are looked up when the drawing is made, so that one which is gone stops it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from coterie import app as _every_room  # noqa: F401 (importing it declares every kind)
from coterie.eventstore import declared_kinds
from tools.reference.svg import box, label, path, svg_document

LANES = ("surface", "engine", "mode", "memory and model", "log")


@dataclass(frozen=True)
class Step:
    lane: int
    text: str
    by: str
    """Module, a colon, and the function or class: `engine.reception:Reception.accept`."""
    kinds: tuple[str, ...] = ()
    """Events that are durable when the step is over."""


STEPS = (
    Step(0, "A person writes", "engine.protocol:IncomingMessage"),
    Step(1, "Kept, before anything else", "engine.inbox:InboxBook.accept", ("message_received",)),
    Step(1, "Who is this?", "engine.door:FrontDoor.admits"),
    Step(1, "To who answers in this room", "engine.talk:Talk.message"),
    Step(2, "Taken up by the mode", "modes.story.story:Story.say", ("user_turn",)),
    Step(3, "What comes to mind", "memory.recall:Recall.ask"),
    Step(2, "Everything the model is told", "modes.story.prompting:Prompter.assemble", ("prompt_sent",)),
    Step(3, "The model is asked", "llm.router:Models.stream", ("model_called",)),
    Step(1, "Words, as they come", "engine.replies:Replies.start", ("assistant_tokens", "assistant_turn")),
    Step(0, "It grows where it is read", "engine.streaming:Growing.add", ("message_opened",)),
    Step(1, "Queued, and answered with it", "engine.reception:Reception", ("message_queued", "message_answered")),
    Step(1, "Brought until it is there", "engine.postman:Postman", ("message_delivered",)),
    Step(0, "The reply, byte for byte", "engine.surface:Surface.send"),
)

EVERY_EVENT = (
    ("numbered and stored", "kernel.recorder:Recorder.append"),
    ("views fold it, in the same transaction", "kernel.views:Views.apply"),
    ("the bus tells everybody", "kernel.local_bus:LocalBus.publish"),
    ("every open page hears it", "engine.feed:Feed.follow"),
)

_LEFT, _TOP, _LANE, _ROW, _TALL = 24, 96, 226, 66, 46


def resolve(by: str) -> object:
    """What a step names. Raises where there is no such thing."""
    module, _, dotted = by.partition(":")
    here: object = importlib.import_module(f"coterie.{module}")
    for name in dotted.split("."):
        here = getattr(here, name)
    return here


def message_diagram() -> str:
    width = _LEFT * 2 + _LANE * len(LANES)
    foot = _TOP + _ROW * len(STEPS) + 24
    height = foot + 128
    parts = [label(_LEFT, 38, "The way of a message", "title")]
    for number, lane in enumerate(LANES):
        x = _LEFT + number * _LANE
        parts.append(label(x + (_LANE - 16) / 2, 74, lane, "name middle"))
        parts.append(path(f"M{x + _LANE - 8:g} 60V{foot - 20:g}", "rule", tip=False) if number < len(LANES) - 1 else "")
    for number, step in enumerate(STEPS):
        parts += _step(number, step)
    parts += _every_event(foot, width)
    told = ". ".join(f"{number}: {step.text} ({step.by})" for number, step in enumerate(STEPS, start=1))
    return svg_document(width, height, "The way of a message", told, [part for part in parts if part])


def _step(number: int, step: Step) -> list[str]:
    resolve(step.by)
    x, y, across = _LEFT + step.lane * _LANE, _TOP + number * _ROW, _LANE - 16
    parts = []
    if number + 1 < len(STEPS):
        parts.append(_arrow(step.lane, STEPS[number + 1].lane, y))
    if step.kinds:
        log = _LEFT + (len(LANES) - 1) * _LANE
        parts.append(path(f"M{x + across:g} {y + _TALL / 2:g}H{log - 2:g}", "kept"))
        parts.append(box(log, y + 2, across, _TALL - 4, "core"))
        lines = [kind for kind in step.kinds if declared_kinds()[kind]]
        for place, kind in enumerate(lines):
            parts.append(label(log + across / 2, y + 27 + (place - (len(lines) - 1) / 2) * 15, kind, "event middle"))
    parts += [
        box(x, y, across, _TALL),
        label(x + across / 2, y + 19, step.text, "told middle"),
        label(x + across / 2, y + 36, step.by.partition(":")[2], "code middle"),
    ]
    return parts


def _arrow(lane: int, after: int, y: float) -> str:
    """From a step's foot to the next one's head."""
    begin, end = (_LEFT + one * _LANE + (_LANE - 16) / 2 for one in (lane, after))
    head, foot = y + _ROW - 1, y + _TALL
    if lane == after:
        return path(f"M{begin:g} {foot:g}V{head:g}")
    middle = (head + foot) / 2
    return path(f"M{begin:g} {foot:g}V{middle:g}H{end:g}V{head:g}")


def _every_event(top: float, width: int) -> list[str]:
    across = (width - 2 * _LEFT - 3 * 28) / len(EVERY_EVENT)
    parts = [label(_LEFT, top + 18, "And each of these events, before anybody is told that it happened:", "title")]
    for number, (told, by) in enumerate(EVERY_EVENT):
        resolve(by)
        x, y = _LEFT + number * (across + 28), top + 36
        if number:
            parts.append(path(f"M{x - 28:g} {y + 25:g}H{x - 2:g}"))
        parts += [
            box(x, y, across, 50, "core" if by.startswith("kernel") else "room"),
            label(x + across / 2, y + 21, told, "sub middle"),
            label(x + across / 2, y + 38, by.partition(":")[2], "code middle"),
        ]
    return parts
