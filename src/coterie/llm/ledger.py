"""Keeps the books: writes each call down as an event, and stops calls when today's cap is used up.

What a call could cost is held back before it is made, so that many calls at once cannot run past the cap together.
Totals are read from the log's view, so they survive a restart; a day is a local day, so they start anew at local
midnight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo

from coterie.base.clock import Clock
from coterie.kernel import NewEvent, Payload, Store
from coterie.llm.catalogue import Catalogue, Target
from coterie.llm.errors import CapReached
from coterie.llm.events import STREAM, ModelCalled
from coterie.llm.messages import Tokens
from coterie.llm.prices import Prices


@dataclass(frozen=True)
class UsageTotal:
    usd_micros: int = 0
    tokens: int = 0
    calls: int = 0

    def __add__(self, other: UsageTotal) -> UsageTotal:
        return UsageTotal(self.usd_micros + other.usd_micros, self.tokens + other.tokens, self.calls + other.calls)


@dataclass(frozen=True, eq=False)
class Reservation:
    """What a call under way could still cost."""

    maximum: UsageTotal


class Ledger:
    def __init__(
        self, catalogue: Catalogue, clock: Clock, store: Store | None = None, zone: tzinfo | None = None
    ) -> None:
        """Without a store it counts for this process only. `zone` is the machine's own unless given."""
        self.prices = Prices(catalogue)
        self._catalogue = catalogue
        self._caps = catalogue.settings.caps
        self._clock = clock
        self._store = store
        self._zone = zone
        self._reservations: dict[int, Reservation] = {}
        self._totals: dict[str, UsageTotal] = {}

    @property
    def today(self) -> str:
        return self._local_now().date().isoformat()

    def total(self, day: str | None = None) -> UsageTotal:
        """What counts toward the caps: everything but models on this machine."""
        day = day or self.today
        if day not in self._totals:
            self._totals[day] = self._load_total(day)
        return self._totals[day]

    @contextmanager
    def reserve(self, target: Target, expected: Tokens) -> Iterator[Reservation]:
        """Set aside what a call could cost, until it is settled. Raises `CapReached` when it is too much."""
        if self._catalogue.spec(target.provider).free:
            yield Reservation(UsageTotal())
            return
        could = UsageTotal(self.prices.price(target, expected).usd_micros, expected.input + expected.output, 1)
        self._check_caps(could)
        hold = Reservation(could)
        self._reservations[id(hold)] = hold
        try:
            yield hold
        finally:
            self._reservations.pop(id(hold), None)

    def settle(self, reservation: Reservation, event: ModelCalled) -> asyncio.Task[None]:
        """What was held becomes what was spent, in one step: nothing is ever counted twice, or not at all.

        It counts at once; whoever awaits what is returned knows that it is durable.
        """
        if event.priced != "free":
            actual = UsageTotal(event.usd_micros, event.tokens_in + event.tokens_out, 1)
            self._totals[event.day] = self.total(event.day) + actual
        self._reservations.pop(id(reservation), None)
        return asyncio.create_task(self.record(event))

    async def record(self, event: Payload) -> None:
        if self._store is not None:
            await self._store.append([NewEvent(STREAM, event)])

    def _load_total(self, day: str) -> UsageTotal:
        if self._store is None:
            return UsageTotal()
        found = self._store.query(
            "SELECT sum(usd_micros), sum(tokens_in + tokens_out), sum(calls) FROM llm_usage "
            "WHERE day = ? AND priced <> 'free'",
            (day,),
        )
        return UsageTotal(*(int(number or 0) for number in found[0]))

    def _check_caps(self, could: UsageTotal) -> None:
        total = sum((hold.maximum for hold in self._reservations.values()), self.total() + could)
        caps = self._caps
        if caps.usd_per_day is not None and total.usd_micros > caps.usd_per_day * 1_000_000:
            spent = (total.usd_micros - could.usd_micros) / 1_000_000
            raise self._cap_reached(
                f"Today's cap of ${caps.usd_per_day:.2f} does not allow this call: ${spent:.2f} is spent or under "
                f"way, and it could cost ${could.usd_micros / 1_000_000:.2f}.",
                "usd_per_day",
            )
        if caps.tokens_per_day is not None and total.tokens > caps.tokens_per_day:
            raise self._cap_reached(
                f"Today's cap of {caps.tokens_per_day:,} tokens does not allow this call: "
                f"{total.tokens - could.tokens:,} are used or under way, and it could take {could.tokens:,}.",
                "tokens_per_day",
            )
        if caps.calls_per_day is not None and total.calls > caps.calls_per_day:
            raise self._cap_reached(f"Today's cap of {caps.calls_per_day:,} calls is used up.", "calls_per_day")

    def _cap_reached(self, what: str, setting: str) -> CapReached:
        now = self._local_now()
        midnight = datetime.combine(now.date() + timedelta(days=1), time(), tzinfo=now.tzinfo)
        left = max(0.0, (midnight - now).total_seconds())
        hours, minutes = divmod(int(left) // 60, 60)
        return CapReached(
            what,
            f"The count starts again at local midnight, in {hours} h {minutes} min. "
            f"To go on now, raise {setting} in [models.caps], or use a model on this machine.",
            retry_after=left,
        )

    def _local_now(self) -> datetime:
        return self._clock.now().astimezone(self._zone)
