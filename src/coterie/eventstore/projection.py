"""A view: tables folded from the log, that can be thrown away and made again.

Handlers are pure in (rows, event). A handler may read the rows of its own stream and those it writes, and
nothing else: that is what lets a rewind replay only what it touched. `coterie verify` holds views to it.
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
    """Mark a view's method as the handler of these kinds of event."""

    def mark(handler: Handler[V, Any]) -> Handler[V, Any]:
        handler.__kinds__ = tuple(payload.kind for payload in payloads)  # type: ignore[attr-defined]  # a mark on a function
        return handler

    return mark


class Projection:
    """Subclass it, name it, write its `schema`, and mark methods with `@on(Payload)`."""

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """Raise it when a handler's meaning changes: the view is then folded anew at the next start."""
    schema: ClassVar[str]
    """CREATE TABLE and CREATE INDEX statements; every table has a primary key."""
    stream_column: ClassVar[str | None] = None
    """The column, in each of its tables, that holds the stream a row belongs to; its handlers write no other stream's
    rows. A fork then inherits the view: its rows are what the parent's were at that moment. A view without it is
    shared by all streams (spending, people), and a fork adds nothing to it."""
    derived: ClassVar[str] = ""
    """Statements for tables that only `settle` fills (full-text indexes): not journaled, not hashed."""

    handlers: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        found = dict(cls.handlers)
        for attribute, member in vars(cls).items():
            for kind in getattr(member, "__kinds__", ()):
                found[kind] = attribute
        cls.handlers = found

    @property
    def tables(self) -> list[str]:
        return _TABLE.findall(self.schema)

    @property
    def fingerprint(self) -> str:
        """Changes when the stored rows could no longer be right: schema, version, or the kinds handled."""
        told = repr(
            (
                self.name,
                self.version,
                self.stream_column,
                inspect.cleandoc(self.schema),
                self.derived,
                sorted(self.handlers),
            )
        )
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def update_derived(self, rows: Rows, changed: ChangedKeys | None) -> None:
        """Bring derived tables in line, in the transaction that changed the view's own.

        `changed` names, per table, the primary keys whose rows were inserted, altered or removed by whatever
        means (an append, a rewind, a fork); None means that everything may have changed.
        """

    @property
    def has_derived(self) -> bool:
        return type(self).update_derived is not Projection.update_derived

    def bound_handlers(self) -> dict[str, Callable[[Rows, Event[Any]], None]]:
        return {kind: getattr(self, attribute) for kind, attribute in self.handlers.items()}
