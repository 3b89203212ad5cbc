"""Settings of messaging, common to all surfaces."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coterie.base.config import Section


class BindingRule(Section):
    """Which character answers where. An empty field matches anything."""

    surface: str = ""
    """Such as `matrix` or `webhook`."""
    room: str = ""
    """The room's id on that surface."""
    person: str = ""
    """The person who writes, by id."""
    character: str
    """The character who answers, by name or id."""


class SurfacesSettings(Section):
    """Messaging on all surfaces: which character answers, who may talk, and how long to wait."""

    default_character: str = ""
    """The character who answers if no binding matches, by name or id; if empty, the first character."""
    bindings: tuple[BindingRule, ...] = ()
    """Which character answers in which rooms; the first match counts."""
    strangers: Literal["pair", "refuse"] = "pair"
    """Strangers get a code that you may approve (`pair`), or a refusal (`refuse`)."""
    guest_modes: tuple[str, ...] = ()
    """The modes in which other people may begin chats, besides story; `desk` lets them run tasks on this machine."""
    code_minutes: int = Field(default=15, ge=1)
    """How long a code for linking or pairing is valid."""
    burst_quiet_s: float = Field(default=1.5, ge=0)
    """Where several people write, the answer waits until they have paused for this long …"""
    burst_most_s: float = Field(default=5.0, ge=0)
    """… or until this long after the first message."""
    backlog_s: float = Field(default=3600.0, ge=0)
    """Messages older than this get one answer for all of them."""
    slow_notice_s: float = Field(default=4.5, ge=0)
    """After this long without an answer the person is notified that it takes longer; 0 for never."""
    largest_file_mb: int = Field(default=50, ge=1)
    """The largest file that is received or sent."""
