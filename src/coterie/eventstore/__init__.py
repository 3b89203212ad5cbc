"""The kernel: one log, views that can be thrown away, jobs that are never lost. It knows no characters."""

from coterie.eventstore.bus import Bus, BusMessage, LocalBus, WhenSlow
from coterie.eventstore.events import (
    AnyEvent,
    Event,
    Forked,
    NewEvent,
    Payload,
    Purged,
    Reset,
    Rewound,
    Superseded,
    declared_kinds,
    upcaster,
)
from coterie.eventstore.jobs import Job, JobDied, Jobs, NewJob
from coterie.eventstore.log import Log, RewindImpact
from coterie.eventstore.projection import ChangedKeys, Projection, on
from coterie.eventstore.sqlite.database import Row, Rows
from coterie.eventstore.sqlite.jobs import Schedule
from coterie.eventstore.sqlite.reader import LogReader
from coterie.eventstore.sqlite.store import Store

__all__ = [
    "AnyEvent",
    "Bus",
    "BusMessage",
    "ChangedKeys",
    "Event",
    "Forked",
    "Job",
    "JobDied",
    "Jobs",
    "LocalBus",
    "Log",
    "LogReader",
    "NewEvent",
    "NewJob",
    "Payload",
    "Projection",
    "Purged",
    "Reset",
    "RewindImpact",
    "Rewound",
    "Row",
    "Rows",
    "Schedule",
    "Store",
    "Superseded",
    "WhenSlow",
    "declared_kinds",
    "on",
    "upcaster",
]
