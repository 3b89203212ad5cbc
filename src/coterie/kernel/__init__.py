"""The kernel: one log, views that can be thrown away, jobs that are never lost. It knows no characters."""

from coterie.kernel.bus import Bus, BusMessage, WhenSlow
from coterie.kernel.control import Forked, Purged, Reset, Rewound, Superseded
from coterie.kernel.database import Row, Rows
from coterie.kernel.events import AnyEvent, Event, NewEvent, Payload, declared_kinds, upcaster
from coterie.kernel.jobs import Job, JobDied, Jobs, NewJob
from coterie.kernel.local_bus import LocalBus
from coterie.kernel.log import Log, RewindImpact
from coterie.kernel.reader import LogReader
from coterie.kernel.schedules import Schedule
from coterie.kernel.store import Store
from coterie.kernel.view import ChangedKeys, Projection, on

__all__ = [
    "AnyEvent",
    "Bus",
    "ChangedKeys",
    "NewEvent",
    "Event",
    "Forked",
    "RewindImpact",
    "Job",
    "JobDied",
    "Jobs",
    "LocalBus",
    "Log",
    "LogReader",
    "BusMessage",
    "NewJob",
    "Payload",
    "Purged",
    "Reset",
    "Rewound",
    "Row",
    "Rows",
    "Schedule",
    "Store",
    "Superseded",
    "Projection",
    "WhenSlow",
    "declared_kinds",
    "on",
    "upcaster",
]
