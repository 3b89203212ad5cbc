"""Settings of messaging, common to all surfaces."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from coterie.base.config import PageSetting, ProtectedSetting, Section
from coterie.base.errors import ConfirmationNeeded
from coterie.characters import OWNER


class BindingRule(Section):
    """Which character answers where. An empty field matches anything."""

    surface: PageSetting[str] = ""
    """Such as `matrix`, `telegram` or `webhook`."""
    server: PageSetting[str] = ""
    """The id of the server or group on that surface, such as a Discord server or a Telegram group."""
    room: PageSetting[str] = ""
    """The room's id on that surface."""
    person: PageSetting[str] = ""
    """The person who writes, by id."""
    character: PageSetting[str] = ""
    """The character who answers, by name or id; if empty, who would answer otherwise."""
    mode: PageSetting[str] = ""
    """The mode of new chats there, such as `desk`; also for people who may not choose it themselves. A new one that is
    not in `guest_modes`, for others than the owner, needs a confirmation on the page."""

    @model_validator(mode="after")
    def _decides_something(self) -> Self:
        if not (self.character or self.mode):
            raise ValueError("A binding needs a character or a mode.")
        return self


_OPEN_MODES = ("", "story")
"""Modes that everybody may use without a setting."""


class SurfacesSettings(Section):
    """Messaging on all surfaces: which character answers, who may talk, and how long to wait."""

    default_character: PageSetting[str] = ""
    """The character who answers if no binding matches, by name or id; if empty, the first character."""
    bindings: PageSetting[tuple[BindingRule, ...]] = ()
    """Which character answers in which rooms; the first match counts."""
    strangers: PageSetting[Literal["pair", "refuse"]] = "pair"
    """Strangers get a code that you may approve (`pair`), or a refusal (`refuse`)."""
    guest_modes: ProtectedSetting[tuple[str, ...]] = ()
    """The modes in which other people may begin chats, besides story; `desk` lets them run tasks on this machine."""
    code_minutes: PageSetting[int] = Field(default=15, ge=1)
    """How long a code for linking or pairing is valid."""
    burst_quiet_s: PageSetting[float] = Field(default=1.5, ge=0)
    """Where several people write, the answer waits until they have paused for this long …"""
    burst_most_s: PageSetting[float] = Field(default=5.0, ge=0)
    """… or until this long after the first message."""
    backlog_s: PageSetting[float] = Field(default=3600.0, ge=0)
    """Messages older than this get one answer for all of them."""
    notices: PageSetting[bool] = True
    """Notices about documents and the crowd are also sent to people's private chats on messengers."""
    slow_notice_s: PageSetting[float] = Field(default=4.5, ge=0)
    """After this long without an answer the person is notified that it takes longer; 0 for never."""
    largest_file_mb: PageSetting[int] = Field(default=50, ge=1)
    """The largest file that is received or sent."""


def check_bound_modes(before: SurfacesSettings, after: SurfacesSettings) -> None:
    """Raises `ConfirmationNeeded` for a new binding that opens a mode to other people, as `guest_modes` does."""
    for rule in after.bindings:
        allowed = rule.mode in (*_OPEN_MODES, *after.guest_modes)
        if not allowed and rule.person != OWNER and rule not in before.bindings:
            raise ConfirmationNeeded(
                f"surfaces.bindings would open the mode {rule.mode} to other people, which surfaces.guest_modes"
                " does not.",
                "Set it in config.toml, or with: coterie settings set surfaces.bindings VALUE",
            )
