"""What the log remembers about models: every call, with what it took and cost, and every classifier that failed.

They go to the stream `instance`: rewinding a chat takes back what was said, not what it cost.
"""

from __future__ import annotations

from typing import Literal

from coterie.kernel import Payload

STREAM = "instance"

Outcome = Literal["answered", "failed", "stopped"]


class ModelCalled(Payload, kind="model_called"):
    """A model was asked: what for, by whom, tokens, money, time, and how it ended."""

    call: str
    """Shared by the tries and fallbacks of one call."""
    day: str
    """The local date at the moment of the call, which is what a daily cap counts by."""
    role: str
    provider: str
    model: str
    room: str = ""
    character: str = ""
    outcome: Outcome
    error: str = ""
    """The name of the error's class, where it failed."""
    tokens_in: int
    tokens_out: int
    tokens_cached: int = 0
    estimated: bool
    """True where the provider did not say how many tokens it was, and we counted."""
    usd_micros: int
    """Millionths of a US dollar."""
    priced: Literal["known", "assumed", "flat", "free"]
    first_token_ms: float | None = None
    total_ms: float


class ClassifierFailed(Payload, kind="classifier_failed"):
    """A structured answer could not be had; the default was used."""

    call: str
    role: str
    schema_name: str
    model: str
    """The model that was asked last."""
    failure: Literal["refused", "not_json", "not_the_schema", "unavailable"]
    raw: str
    """What it said, masked and cut short."""
    attempts: int
    room: str = ""
    character: str = ""
