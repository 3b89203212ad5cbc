"""A switch that forbids real requests, so that no test and no replay can reach a provider by accident.

It is a process-wide variable on purpose: whoever forgot to hand a scripted model in is exactly who must be stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coterie.llm.errors import RequestsForbidden

_allowed = True


@contextmanager
def real_requests(*, allowed: bool) -> Iterator[None]:
    global _allowed
    before, _allowed = _allowed, allowed
    try:
        yield
    finally:
        _allowed = before


def check_real_requests(model: str) -> None:
    if not _allowed:
        raise RequestsForbidden(
            f"A request to {model} was stopped: real requests are switched off.",
            "Hand in a scripted or recorded model, or allow it with real_requests(allowed=True).",
        )
