"""What a commit of ours says: why, for which change, from which thread. Plain git shows it. F1

Say it shorter

The sentence said the same thing twice.

Coterie-Change: 01KB…
Coterie-Thread: 01KB…
Proposed-by: Mara
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

CHANGE_TRAILER, THREAD_TRAILER, PROPOSED_BY_TRAILER, UNDOES_TRAILER = (
    "Coterie-Change",
    "Coterie-Thread",
    "Proposed-by",
    "Coterie-Undoes",
)
CO_AUTHOR_TRAILER = "Co-authored-by"
_SUBJECT = 72


@dataclass(frozen=True, slots=True)
class GitAuthor:
    name: str
    email: str


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """What a commit is to say."""

    subject: str
    body: str = ""
    trailers: Mapping[str, str | list[str]] = field(default_factory=dict)
    """A name may have several values: each is a trailer of its own."""

    def format(self) -> str:
        told = _one_line(self.subject) or "Change the text"
        subject = textwrap.shorten(told, _SUBJECT, placeholder="…")
        # A trailer in somebody's reason would be read as ours, so the body is never the last paragraph alone.
        body = [] if self.body.strip() in ("", subject) else [self.body.strip()]
        values = ((name, [value] if isinstance(value, str) else value) for name, value in self.trailers.items())
        trailers = "\n".join(f"{name}: {_one_line(one)}" for name, several in values for one in several if one)
        return "\n\n".join([subject, *body, *([trailers] if trailers else [])]) + "\n"


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit of a branch, as history shows it."""

    id: str
    author: str
    when: int
    """Seconds since 1970."""
    subject: str
    trailers: Mapping[str, str]

    @property
    def thread(self) -> str:
        """The talk that earned it; empty where there was none."""
        return self.trailers.get(THREAD_TRAILER, "")


def _one_line(text: str) -> str:
    return re.sub(r"[\s\x00-\x1f\x7f]+", " ", text).strip()
