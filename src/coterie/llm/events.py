"""What the log remembers about models: every call, with what it took and cost, and every classifier that failed.

They go to the stream `instance`: rewinding a chat takes back what was said, not what it cost.
"""

from __future__ import annotations

from typing import Any, Literal

from coterie.eventstore import Payload, upcaster

STREAM = "instance"

Outcome = Literal["answered", "failed", "stopped"]


class ModelCalled(Payload, kind="model_called"):
    """A model was asked: what for, by whom, tokens, money, time, and how it ended."""

    call: str
    """Shared by the tries and fallbacks of one call."""
    day: str
    """The local date at the moment of the call, which is what a daily cap counts by."""
    role: str
    """What it was for: `narrative`, `classifier`, `worker` …"""
    provider: str
    """Its name in the settings, such as `embedded`."""
    model: str
    """As its provider calls it."""
    room: str = ""
    """The room it was for: a stream, or a crowd's name; empty for none."""
    character: str = ""
    """The character it was for: an id, or a persona's name; empty for none."""
    outcome: Outcome
    """`stopped` where whoever asked did not listen to the end."""
    error: str = ""
    """The name of the error's class, where it failed."""
    tokens_in: int
    """Tokens of the prompt; 0 where it was turned away before a word."""
    tokens_out: int
    """Tokens of the answer, as far as it came."""
    tokens_cached: int = 0
    """How many of `tokens_in` the provider had cached."""
    estimated: bool
    """True where the provider did not say how many tokens it was, and we counted."""
    usd_micros: int
    """Millionths of a US dollar."""
    priced: Literal["known", "assumed", "flat", "free"]
    """A `known` or an `assumed` price, a `flat` rate that costs no more, or `free`, as on this machine."""
    first_token_ms: float | None = None
    """Milliseconds until something came; None where nothing did."""
    total_ms: float
    """Milliseconds that this try took."""


class ClassifierFailed(Payload, kind="classifier_failed", version=2):
    """A structured answer could not be had; the default was used."""

    role: str
    """What it was for: `narrative`, `classifier`, `worker` …"""
    schema_name: str
    """The shape that was wanted, by its class: `SceneCheck`, `Closing` …"""
    model: str
    """The model that was asked last."""
    failure: Literal["refused", "not_json", "not_the_schema", "unavailable"]
    """What was wrong last; `unavailable` where no model answered at all."""
    raw: str
    """What it said, masked and cut short."""
    attempts: int
    """How often it was asked: twice at most, 0 where no time was left."""
    room: str = ""
    """The room it was for: a stream, or a crowd's name; empty for none."""
    character: str = ""
    """The character it was for: an id, or a persona's name; empty for none."""


@upcaster("classifier_failed", 1)
def _drop_call_id(fields: dict[str, Any]) -> dict[str, Any]:
    """It had an id of its own that belonged to nothing."""
    return {name: value for name, value in fields.items() if name != "call"}
