"""Messages whose fate somebody should know: never delivered, or perhaps shown twice. D21"""

from __future__ import annotations

from collections.abc import Iterator

from coterie.base.home import Paths
from coterie.engine.outbox import Outbox, OutboxProjection
from coterie.kernel import LogReader
from coterie.ops.doctor import Check, CheckResult

_TOLD = 5


def deliveries_check(home: Paths) -> Check:
    def deliveries() -> Iterator[CheckResult]:
        if not home.database.exists():
            return
        reader = LogReader(home.database)
        try:
            known = reader.projection_fingerprints()
            if known.get(OutboxProjection.name) != OutboxProjection().fingerprint:
                return  # an older file: there is nothing to tell before it is opened
            uncertain = Outbox(reader).uncertain()
        finally:
            reader.close()
        failed = [one for one in uncertain if one.state == "failed"]
        for one in failed[-_TOLD:]:
            where = f"{one.outgoing.room.surface} {one.outgoing.room.id}"
            yield CheckResult("Delivery", "bad", f"a message to {where} was not taken: {one.error}", "Mend the cause.")
        if twice := len(uncertain) - len(failed):
            yield CheckResult("Delivery", "note", f"shown perhaps twice after a crash or a broken line: {twice}")
        if not uncertain:
            yield CheckResult("Delivery", "ok", "nothing is in doubt")

    return deliveries
