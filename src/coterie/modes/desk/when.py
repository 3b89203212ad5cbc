"""When something on the timetable is due: by cron expression, by interval, or once; within hours if any are given. D15

Days and hours are those of the schedule's own time zone, so they follow its clock when that changes for summer. An
interval is elapsed time, whatever clocks do.
"""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, model_validator

from coterie.base.errors import JobError
from coterie.kernel.schedules import Schedule
from coterie.modes.desk.errors import BadSchedule

_SHORTEST_S = 60.0
_FURTHEST = 3_000
"""Moments looked at for one within the active hours: two days of minutes, eight years of days."""


class ScheduleTime(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    cron: str = Field(default="", max_length=100)
    """Five fields, such as `0 8 * * 1-5`."""
    every_s: float | None = None
    """Seconds between two runs, at least 60."""
    at: datetime | None = None
    """Once, then; without an offset it is meant in the time zone."""
    zone: str = "UTC"
    """A name such as `Europe/Berlin`."""
    hours: str = Field(default="", pattern=r"^$|^\d\d:\d\d-\d\d:\d\d$")
    """When it may run, such as `08:00-22:00`; over midnight is fine. Empty: always."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum((bool(self.cron), self.every_s is not None, self.at is not None)) != 1:
            raise ValueError("it needs a cron expression, an interval or a moment, and only one of them")
        return self

    @property
    def once(self) -> bool:
        return self.at is not None

    def check(self) -> None:
        """Whether it is a time at all; `BadSchedule` tells what is wrong."""
        if self.every_s is not None and self.every_s < _SHORTEST_S:
            raise BadSchedule(f"It would run every {self.every_s:g} s.", f"Give it at least {_SHORTEST_S:.0f} s.")
        try:
            self._timer().validate() if self.at is None else Schedule(
                "once", "", every_s=1.0, zone=self.zone
            ).validate()
        except JobError as error:
            raise BadSchedule(error.what, error.fix) from None
        if self.hours:
            self._window()

    def due_after(self, moment: datetime) -> datetime | None:
        """The first moment after this one; None when there is none any more."""
        if self.at is not None:
            at = self.at if self.at.tzinfo is not None else self.at.replace(tzinfo=ZoneInfo(self.zone))
            return at.astimezone(UTC) if at > moment else None
        due = moment
        for _ in range(_FURTHEST):
            try:
                due = self._timer().next_after(due).astimezone(UTC)
            except StopIteration:
                break
            if self._within(due):
                return due
        raise BadSchedule("This moment never comes.", "Look at its days, and at its hours.")

    def describe(self) -> str:
        """In a few words, for people and models."""
        if self.at is not None:
            said = f"once, at {self.at:%Y-%m-%d %H:%M}"
        elif self.cron:
            said = f"cron {self.cron}"
        else:
            said = f"every {(self.every_s or 0) / 60:g} min"
        return f"{said} ({self.zone}{f', {self.hours}' if self.hours else ''})"

    def _timer(self) -> Schedule:
        return Schedule("desk", "", self.cron or None, self.every_s, self.zone)

    def _within(self, moment: datetime) -> bool:
        if not self.hours:
            return True
        first, last = self._window()
        now = moment.astimezone(ZoneInfo(self.zone)).time()
        return first <= now < last if first <= last else now >= first or now < last

    def _window(self) -> tuple[time, time]:
        try:
            first, last = (time.fromisoformat(part) for part in self.hours.split("-"))
        except ValueError:
            raise BadSchedule(f"{self.hours} are not hours of a day.", "Write them as 08:00-22:00.") from None
        return first, last
