"""Why a reply broke off, as a person is told: what happened, what to do, and the one button that helps. S20"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_MODELS = ("Settings → Models", "/settings#models")


@dataclass(frozen=True)
class ReplyError:
    code: str
    """For tests and styles: `stopped`, `length`, `restart`, `401`, `429`, `5xx`, `lost`."""
    kind: Literal["info", "warn", "danger"]
    title: str
    text: str = ""
    act: str = "Regenerate"
    link: tuple[str, str] | None = None


_KNOWN = {
    "stopped": ReplyError("stopped", "info", "You stopped this reply.", "What was said is kept."),
    "length": ReplyError("length", "info", "The reply reached its longest length.", "What was said is kept."),
    "restart": ReplyError("restart", "warn", "Coterie stopped in the middle of this reply.", "What was said is kept."),
}


def reply_error(why: str, status: int | None = None) -> ReplyError:
    """`why` is what the log says of the end of a reply, `status` what the provider refused it with."""
    if why in _KNOWN:
        return _KNOWN[why]
    status = status or 0
    if status in (401, 403):
        return ReplyError("401", "danger", "The provider refused the key.", why, "Retry", _MODELS)
    if status == 402:
        return ReplyError("402", "danger", "The provider wants to be paid first.", why, "Retry", _MODELS)
    if status == 429:
        return ReplyError("429", "warn", "The provider asks to slow down.", why, "Retry")
    if status >= 500:
        return ReplyError("5xx", "warn", "The provider has trouble of its own.", why, "Retry")
    if status >= 400:
        return ReplyError("4xx", "danger", "The provider did not take the request.", why, "Retry", _MODELS)
    return ReplyError("lost", "warn", "Connection lost, partial reply saved.", why)
