"""Projections: tables that are computed from the log and can be rebuilt from it at any time.

Handlers are pure functions of (rows, event). A handler may read only rows of its own stream and rows that it writes;
therefore a rewind needs to replay only the events that wrote the same rows. `coterie verify` checks this.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar, TypeVar, overload

from coterie.eventstore.events import Event, P, Payload
from coterie.eventstore.sqlite.database import Row, Rows

V = TypeVar("V", bound="Projection")
Handler = Callable[[V, Rows, Event[P]], None]
ChangedKeys = Mapping[str, Collection[Row]]

_TABLE = re.compile(r"CREATE\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)", re.IGNORECASE)


@overload
def on(payload: type[P], /) -> Callable[[Handler[V, P]], Handler[V, P]]: ...


@overload
def on(*payloads: type[Payload]) -> Callable[[Handler[V, Any]], Handler[V, Any]]: ...


def on(*payloads: type[Payload]) -> Callable[[Handler[V, Any]], Handler[V, Any]]:
    """Mark a projection's method as the handler of these kinds of event."""

    def mark(handler: Handler[V, Any]) -> Handler[V, Any]:
        handler.__kinds__ = tuple(payload.kind for payload in payloads)  # type: ignore[attr-defined]  # an attribute on a function
        return handler

    return mark


class Projection:
    """The base class: a subclass sets `name` and `schema`, and marks its handlers with `@on(Payload)`."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raise it when a handler changes: the projection is then rebuilt at the next start."""
    schema: ClassVar[str]
    """CREATE TABLE and CREATE INDEX statements; every table has a primary key."""
    stream_column: ClassVar[str | None] = None
    """The column, in each of its tables, that holds the stream of a row; handlers write only rows of their stream. A
    fork then starts with a copy of the parent's rows as of that position. A projection without it is shared by all
    streams (usage, people), and a fork adds nothing to it."""
    journaled: ClassVar[bool] = True
    """Whether its tables have undo journals. Without them it takes less space, and is rebuilt if one of its events
    becomes inactive: for events of streams that are never rewound. It cannot have derived tables then."""
    derived: ClassVar[str] = ""
    """Statements for tables that only `update_derived` fills (full-text indexes): not journaled, not hashed."""

    handlers: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        handlers = dict(cls.handlers)
        for attribute, member in vars(cls).items():
            for kind in getattr(member, "__kinds__", ()):
                handlers[kind] = attribute
        cls.handlers = handlers

    @property
    def tables(self) -> list[str]:
        return _TABLE.findall(self.schema)

    @property
    def fingerprint(self) -> str:
        """Changes whenever the stored rows may be outdated: with the schema, the version, or the kinds handled."""
        definition = repr(
            (
                self.name,
                self.version,
                self.stream_column,
                inspect.cleandoc(self.schema),
                self.derived,
                sorted(self.handlers),
            )
        )
        return hashlib.sha256(definition.encode()).hexdigest()[:16]

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        """Update the derived tables, in the transaction that changed the others.

        `changed` maps each table to the primary keys whose rows were inserted, changed or removed, whether by an
        append, a rewind or a fork; None means that everything may have changed.
        """

    @property
    def has_derived(self) -> bool:
        return type(self).update_derived is not Projection.update_derived

    def bound_handlers(self) -> dict[str, Callable[[Rows, Event[Any]], None]]:
        return {kind: getattr(self, attribute) for kind, attribute in self.handlers.items()}
