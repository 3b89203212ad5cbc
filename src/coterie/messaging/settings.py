"""How conversations are held on surfaces, whichever they are."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from coterie.base.config import Section


class Binding(Section):
    """Who answers where. What is left empty fits anything. D12"""

    surface: str = ""
    """Such as `matrix` or `webhook`."""
    room: str = ""
    """The room's id on that surface."""
    person: str = ""
    """Who writes, by id."""
    character: str
    """Who answers, by name or id."""


class SurfacesSettings(Section):
    """Talking elsewhere: who answers whom, who is let in, and how patient we are."""

    default_character: str = ""
    """Who answers where nothing else is said, by name or id; without it, the first character there is."""
    bindings: tuple[Binding, ...] = ()
    """Who answers in which rooms; the first that fits counts."""
    strangers: Literal["pair", "refuse"] = "pair"
    """Somebody unknown gets a code that you may approve (`pair`), or only a polite refusal (`refuse`)."""
    guest_modes: tuple[str, ...] = ()
    """Which kinds of chat people other than you may begin besides stories; `desk` lets them have work done here."""
    code_minutes: int = Field(default=15, ge=1)
    """How long a code for linking or pairing can be used."""
    burst_quiet_s: float = Field(default=1.5, ge=0)
    """Where several people talk, the answer waits until they have paused this long …"""
    burst_most_s: float = Field(default=5.0, ge=0)
    """… or since this long."""
    backlog_s: float = Field(default=3600.0, ge=0)
    """Messages older than this get one answer for all of them."""
    slow_notice_s: float = Field(default=4.5, ge=0)
    """After this long without a word the person is told that it takes longer; 0 tells nothing."""
    largest_file_mb: int = Field(default=50, ge=1)
    """The largest file that is taken in or sent."""
