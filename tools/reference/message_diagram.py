"""docs/img/message.svg: the path of a message, from a person's text to the reply on every surface.

The steps are listed by hand. The code that each one names is looked up, so that a name that is gone stops the drawing.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from coterie import app as _all_kinds  # noqa: F401 (importing it declares every kind)
from coterie.eventstore import declared_kinds
from tools.reference.svg import box, label, path, svg_document

LANES = ("surface", "messaging, conversation", "mode", "memory and models", "event log")


@dataclass(frozen=True)
class Step:
    lane: int
    text: str
    by: str
    """Module, a colon, and the function or class: `messaging.inbox:Inbox.accept`."""
    kinds: tuple[str, ...] = ()
    """Events that are stored when the step is done."""


STEPS = (
    Step(0, "A person writes a message", "messaging.protocol:IncomingMessage"),
    Step(1, "Store it in the inbox", "messaging.inbox:Inbox.accept", ("message_received",)),
    Step(1, "Check the sender's permission", "messaging.permissions:Permissions.is_known"),
    Step(1, "Route it to the room's chat", "messaging.routing:ChatRouter.handle_message"),
    Step(2, "Start a turn", "modes.story.service:StoryService.send_message", ("user_turn",)),
    Step(3, "Recall memories", "memory.recall:RecallService.recall"),
    Step(2, "Build the prompt", "modes.story.prompts:StoryPromptBuilder.assemble", ("prompt_sent",)),
    Step(3, "Call the model", "llm.router:Models.stream", ("model_called",)),
    Step(1, "Stream and store the reply", "conversation.replies:Replies.start", ("assistant_tokens", "assistant_turn")),
    Step(0, "Edit the growing message", "messaging.streaming:StreamedMessage.add", ("message_opened",)),
    Step(
        1, "Queue the final reply", "messaging.message_router:InboundProcessor", ("message_queued", "message_answered")
    ),
    Step(1, "Deliver it, with retries", "messaging.delivery:DeliveryWorker", ("message_delivered",)),
    Step(0, "Show the final reply", "messaging.ports:Surface.send"),
)

EVERY_EVENT = (
    ("number and store", "eventstore.sqlite.recorder:EventRecorder.append"),
    ("update projections, same transaction", "eventstore.sqlite.projections:LiveProjections.apply"),
    ("publish on the bus", "eventstore.bus:LocalBus.publish"),
    ("update every open page", "conversation.feed:Feed.follow"),
)

_LEFT, _TOP, _LANE, _ROW, _TALL = 24, 96, 226, 66, 46


def resolve(by: str) -> object:
    """The object that a step names; raises `AttributeError` or `ImportError` if it does not exist."""
    module, _, dotted = by.partition(":")
    target: object = importlib.import_module(f"coterie.{module}")
    for name in dotted.split("."):
        target = getattr(target, name)
    return target


def message_diagram() -> str:
    width = _LEFT * 2 + _LANE * len(LANES)
    foot = _TOP + _ROW * len(STEPS) + 24
    height = foot + 128
    parts = [
        label(_LEFT, 38, "The path of a message", "title"),
        label(_LEFT + 240, 38, "Steps drawn by hand; the names in them are checked against the code.", "sub"),
    ]
    for number, lane in enumerate(LANES):
        x = _LEFT + number * _LANE
        parts.append(label(x + (_LANE - 16) / 2, 74, lane, "name middle"))
        parts.append(path(f"M{x + _LANE - 8:g} 60V{foot - 20:g}", "rule", tip=False) if number < len(LANES) - 1 else "")
    for number, step in enumerate(STEPS):
        parts += _step(number, step)
    parts += _every_event(foot, width)
    description = ". ".join(f"{number}: {step.text} ({step.by})" for number, step in enumerate(STEPS, start=1))
    return svg_document(width, height, "The path of a message", description, [part for part in parts if part])


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
        label(x + across / 2, y + 19, step.text, "text middle"),
        label(x + across / 2, y + 36, step.by.partition(":")[2], "code middle"),
    ]
    return parts


def _arrow(lane: int, after: int, y: float) -> str:
    """From the bottom of a step to the top of the next one."""
    begin, end = (_LEFT + column * _LANE + (_LANE - 16) / 2 for column in (lane, after))
    head, foot = y + _ROW - 1, y + _TALL
    if lane == after:
        return path(f"M{begin:g} {foot:g}V{head:g}")
    middle = (head + foot) / 2
    return path(f"M{begin:g} {foot:g}V{middle:g}H{end:g}V{head:g}")


def _every_event(top: float, width: int) -> list[str]:
    across = (width - 2 * _LEFT - 3 * 28) / len(EVERY_EVENT)
    parts = [label(_LEFT, top + 18, "For every event:", "title")]
    for number, (text, by) in enumerate(EVERY_EVENT):
        resolve(by)
        x, y = _LEFT + number * (across + 28), top + 36
        if number:
            parts.append(path(f"M{x - 28:g} {y + 25:g}H{x - 2:g}"))
        parts += [
            box(x, y, across, 50, "core" if by.startswith("eventstore") else "package"),
            label(x + across / 2, y + 21, text, "sub middle"),
            label(x + across / 2, y + 38, by.partition(":")[2], "code middle"),
        ]
    return parts
