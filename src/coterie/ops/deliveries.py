"""Messages whose fate somebody should know: never delivered, or perhaps shown twice. D21"""

from __future__ import annotations

from collections.abc import Iterator

from coterie.base.home import Home
from coterie.engine.outbox import Outbox, OutboxBook
from coterie.kernel import LogReader
from coterie.ops.doctor import Check, Finding

_TOLD = 5


def deliveries(home: Home) -> Check:
    def deliveries() -> Iterator[Finding]:
        if not home.database.exists():
            return
        reader = LogReader(home.database)
        try:
            known = reader.projection_fingerprints()
            if known.get(Outbox.name) != Outbox().fingerprint:
                return  # an older file: there is nothing to tell before it is opened
            uncertain = OutboxBook(reader).uncertain()
        finally:
            reader.close()
        failed = [one for one in uncertain if one.state == "failed"]
        for one in failed[-_TOLD:]:
            where = f"{one.outgoing.room.surface} {one.outgoing.room.id}"
            yield Finding("Delivery", "bad", f"a message to {where} was not taken: {one.error}", "Mend the cause.")
        if twice := len(uncertain) - len(failed):
            yield Finding("Delivery", "note", f"shown perhaps twice after a crash or a broken line: {twice}")
        if not uncertain:
            yield Finding("Delivery", "ok", "nothing is in doubt")

    return deliveries
