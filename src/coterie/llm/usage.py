"""Usage of models: events, prices, spending caps, and usage per day, role, model, character and room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from typing import Any, Literal

from coterie.base.clock import Clock
from coterie.base.supervisor import run_once
from coterie.eventstore import Event, NewEvent, Payload, Projection, Rows, Store, on, upcaster
from coterie.llm.errors import CapReached
from coterie.llm.messages import Tokens
from coterie.llm.settings import Catalogue, Target

STREAM = "instance"
"""Usage is not in the chat's stream, because rewinding a chat does not undo its cost."""

Outcome = Literal["answered", "failed", "stopped"]


class ModelCalled(Payload, kind="model_called"):
    """An attempt of a model call: its purpose, tokens, cost, duration and outcome."""

    call: str
    """The call's id, shared by its attempts and fallbacks."""
    day: str
    """The local date of the call; daily caps use it."""
    role: str
    """What it was for: `narrative`, `classifier`, `worker` …"""
    provider: str
    """The provider's name in the settings, such as `embedded`."""
    model: str
    """The provider's name for the model."""
    room: str = ""
    """The room it was for: a stream, or a crowd's name; empty for none."""
    character: str = ""
    """The character it was for: an id, or a persona's name; empty for none."""
    outcome: Outcome
    """`stopped` if the caller cancelled it."""
    error: str = ""
    """The name of the error class if it failed."""
    tokens_in: int
    """Tokens of the prompt; 0 if the call failed without output."""
    tokens_out: int
    """Tokens of the answer, or of the part that was received."""
    tokens_cached: int = 0
    """How many of `tokens_in` the provider read from its cache."""
    estimated: bool
    """True if the provider reported no count and Coterie counted the tokens itself."""
    usd_micros: int
    """Millionths of a US dollar."""
    priced: Literal["known", "assumed", "flat", "free"]
    """How the price was found: `known`, `assumed`, `flat` (subscription) or `free` (on this machine)."""
    first_token_ms: float | None = None
    """Milliseconds until the first chunk; None if there was none."""
    total_ms: float
    """Duration of this attempt in milliseconds."""
    selection: str = ""
    """How the answer was chosen, if the embedded model gave several candidates."""


class ClassifierFailed(Payload, kind="classifier_failed", version=2):
    """A model gave no valid structured answer, so the default was used."""

    role: str
    """What it was for: `narrative`, `classifier`, `worker` …"""
    schema_name: str
    """The class of the expected answer: `SceneCheck`, `Closing` …"""
    model: str
    """The model that was asked last."""
    failure: Literal["refused", "not_json", "not_the_schema", "unavailable"]
    """The last failure; `unavailable` if no model answered."""
    raw: str
    """The answer, with secrets masked, truncated."""
    attempts: int
    """Number of attempts: at most two; 0 if no time was left."""
    room: str = ""
    """The room it was for: a stream, or a crowd's name; empty for none."""
    character: str = ""
    """The character it was for: an id, or a persona's name; empty for none."""


@upcaster("classifier_failed", 1)
def _drop_call_id(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 had an id that referred to nothing."""
    return {name: value for name, value in fields.items() if name != "call"}


PriceBasis = Literal["known", "assumed", "flat", "free"]


@dataclass(frozen=True)
class Price:
    usd_micros: int
    basis: PriceBasis


class Prices:
    """Prices from the settings, else from the installed package genai-prices, which is never downloaded.

    A model with no known price gets an assumed one from the settings, so that caps cover it too.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._unlisted: set[Target] = set()

    def price(self, target: Target, tokens: Tokens) -> Price:
        spec = self._catalogue.spec(target.provider)
        if spec.free:
            return Price(0, "free")
        details = self._catalogue.details(target)
        if details.usd_per_million_in is not None and details.usd_per_million_out is not None:
            # Dollars per million tokens are micro-dollars per token.
            cost = tokens.input * details.usd_per_million_in + tokens.output * details.usd_per_million_out
            return Price(round(cost), "known")
        if spec.flat_rate:
            return Price(0, "flat")
        if (listed := self._list_price(target, tokens)) is not None:
            return Price(listed, "known")
        per_token = self._catalogue.settings.caps.unknown_usd_per_million
        return Price(round((tokens.input + tokens.output) * per_token), "assumed")

    def per_million(self, target: Target) -> tuple[float, float] | None:
        """Dollars per million tokens in and out, by the settings, the provider or the list; None if it is not known."""
        details = self._catalogue.details(target)
        if details.usd_per_million_in is not None and details.usd_per_million_out is not None:
            return details.usd_per_million_in, details.usd_per_million_out
        pair = [self._list_price(target, Tokens(input=i, output=o)) for i, o in ((1_000_000, 0), (0, 1_000_000))]
        return None if pair[0] is None or pair[1] is None else (pair[0] / 1e6, pair[1] / 1e6)

    def _list_price(self, target: Target, tokens: Tokens) -> int | None:
        if target in self._unlisted:
            return None
        from genai_prices import Usage, calc_price

        usage = Usage(
            input_tokens=tokens.input,
            output_tokens=tokens.output,
            cache_read_tokens=min(tokens.cached, tokens.input),
        )
        try:
            calculation = calc_price(usage, target.model, provider_id=self._catalogue.preset_name(target.provider))
        except LookupError:
            self._unlisted.add(target)
            return None
        return round(calculation.total_price * 1_000_000)


@dataclass(frozen=True)
class UsageTotal:
    usd_micros: int = 0
    tokens: int = 0
    calls: int = 0
    assumed_micros: int = 0
    """The part of the dollars that is an assumption, because the price of the model is not known."""

    def __add__(self, other: UsageTotal) -> UsageTotal:
        return UsageTotal(
            self.usd_micros + other.usd_micros,
            self.tokens + other.tokens,
            self.calls + other.calls,
            self.assumed_micros + other.assumed_micros,
        )


@dataclass(frozen=True, eq=False)
class Reservation:
    """The maximum cost of a call in progress."""

    maximum: UsageTotal


class Ledger:
    """Records each call as an event and enforces the daily caps.

    A call's maximum cost is reserved before it starts, so that concurrent calls cannot exceed a cap together. Totals
    come from the projection, so they survive a restart; they start again at local midnight.
    """

    def __init__(
        self, catalogue: Catalogue, clock: Clock, store: Store | None = None, zone: tzinfo | None = None
    ) -> None:
        """Without a store, usage is counted for this process only. `zone` defaults to the machine's time zone."""
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
        """The usage that counts toward the caps: all calls except those of free models."""
        day = day or self.today
        if day not in self._totals:
            self._totals[day] = self._load_total(day)
        return self._totals[day]

    @contextmanager
    def reserve(self, target: Target, expected: Tokens) -> Iterator[Reservation]:
        """Reserve the maximum cost of a call until it is settled. Raises `CapReached` if it exceeds a cap."""
        if self._catalogue.spec(target.provider).free:
            yield Reservation(UsageTotal())
            return
        maximum = UsageTotal(self.prices.price(target, expected).usd_micros, expected.input + expected.output, 1)
        self._check_caps(maximum)
        reservation = Reservation(maximum)
        self._reservations[id(reservation)] = reservation
        try:
            yield reservation
        finally:
            self._reservations.pop(id(reservation), None)

    def settle(self, reservation: Reservation, event: ModelCalled) -> asyncio.Task[None]:
        """Replace a reservation by the actual usage, which counts immediately. The returned task stores the event."""
        if event.priced != "free":
            assumed = event.usd_micros if event.priced == "assumed" else 0
            actual = UsageTotal(event.usd_micros, event.tokens_in + event.tokens_out, 1, assumed)
            self._totals[event.day] = self.total(event.day) + actual
        self._reservations.pop(id(reservation), None)
        return run_once("record of a model call", self.record(event))

    async def record(self, event: Payload) -> None:
        if self._store is not None:
            await self._store.append([NewEvent(STREAM, event)])

    def _load_total(self, day: str) -> UsageTotal:
        if self._store is None:
            return UsageTotal()
        rows = self._store.query(
            "SELECT sum(usd_micros), sum(tokens_in + tokens_out), sum(calls),"
            " sum(CASE priced WHEN 'assumed' THEN usd_micros END) FROM llm_usage "
            "WHERE day = ? AND priced <> 'free'",
            (day,),
        )
        return UsageTotal(*(int(number or 0) for number in rows[0]))

    def _check_caps(self, maximum: UsageTotal) -> None:
        total = sum((reservation.maximum for reservation in self._reservations.values()), self.total() + maximum)
        caps = self._caps
        if caps.usd_per_day is not None and total.usd_micros > caps.usd_per_day * 1_000_000:
            spent = (total.usd_micros - maximum.usd_micros) / 1_000_000
            raise self._cap_reached(
                f"Today's cap of ${caps.usd_per_day:.2f} does not allow this call: ${spent:.2f} is spent or "
                f"reserved, and it could cost ${maximum.usd_micros / 1_000_000:.2f}.",
                "usd_per_day",
            )
        if caps.tokens_per_day is not None and total.tokens > caps.tokens_per_day:
            raise self._cap_reached(
                f"Today's cap of {caps.tokens_per_day:,} tokens does not allow this call: "
                f"{total.tokens - maximum.tokens:,} are used or reserved, and it could take {maximum.tokens:,}.",
                "tokens_per_day",
            )
        if caps.calls_per_day is not None and total.calls > caps.calls_per_day:
            raise self._cap_reached(f"Today's cap of {caps.calls_per_day:,} calls is used up.", "calls_per_day")

    def _cap_reached(self, what: str, setting: str) -> CapReached:
        now = self._local_now()
        midnight = datetime.combine(now.date() + timedelta(days=1), time(), tzinfo=now.tzinfo)
        remaining_s = max(0.0, (midnight - now).total_seconds())
        hours, minutes = divmod(int(remaining_s) // 60, 60)
        return CapReached(
            what,
            f"The count starts again at local midnight, in {hours} h {minutes} min. "
            f"To continue now, raise {setting} in [models.caps], or use a model on this machine.",
            retry_after=remaining_s,
        )

    def _local_now(self) -> datetime:
        return self._clock.now().astimezone(self._zone)


class UsageProjection(Projection):
    name = "llm_usage"
    version = 1
    journaled = False  # its events are in the stream of the instance, which is never rewound
    schema = """
        CREATE TABLE llm_usage(
            day TEXT, role TEXT, provider TEXT, model TEXT, character TEXT, room TEXT, priced TEXT,
            calls INTEGER NOT NULL, failed INTEGER NOT NULL, stopped INTEGER NOT NULL,
            tokens_in INTEGER NOT NULL, tokens_out INTEGER NOT NULL, usd_micros INTEGER NOT NULL,
            total_ms REAL NOT NULL,
            PRIMARY KEY(day, role, provider, model, character, room, priced)
        ) WITHOUT ROWID;
        CREATE TABLE classifier_failure(
            id INTEGER PRIMARY KEY, at TEXT NOT NULL, role TEXT NOT NULL, schema_name TEXT NOT NULL,
            model TEXT NOT NULL, failure TEXT NOT NULL, raw TEXT NOT NULL, attempts INTEGER NOT NULL,
            room TEXT NOT NULL, character TEXT NOT NULL
        );
    """

    @on(ModelCalled)
    def called(self, rows: Rows, event: Event[ModelCalled]) -> None:
        call = event.payload
        rows.run(
            """
            INSERT INTO llm_usage VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?, ?)
            ON CONFLICT DO UPDATE SET
                calls = calls + 1, failed = failed + excluded.failed, stopped = stopped + excluded.stopped,
                tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
                usd_micros = usd_micros + excluded.usd_micros, total_ms = total_ms + excluded.total_ms
            """,
            (
                *(call.day, call.role, call.provider, call.model, call.character, call.room, call.priced),
                *(int(call.outcome == "failed"), int(call.outcome == "stopped")),
                *(call.tokens_in, call.tokens_out, call.usd_micros, call.total_ms),
            ),
        )

    @on(ClassifierFailed)
    def classifier_failed(self, rows: Rows, event: Event[ClassifierFailed]) -> None:
        failed = event.payload
        rows.run(
            "INSERT INTO classifier_failure VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(event.id, event.ts.isoformat(), failed.role, failed.schema_name, failed.model),
                *(failed.failure, failed.raw, failed.attempts, failed.room, failed.character),
            ),
        )


@dataclass(frozen=True)
class DailyUsage:
    """The calls, tokens and cost of one model in one role on one day."""

    day: str
    role: str
    model: str
    calls: int
    failed: int
    stopped: int
    tokens_in: int
    tokens_out: int
    usd: float
    seconds: float
    assumed: bool
    """Whether the price of the model is not known, so that the dollars are an assumption."""


@dataclass(frozen=True)
class ClassifierFailure:
    """A structured answer that failed, as shown on the operations page."""

    id: int
    at: datetime
    role: str
    schema_name: str
    model: str
    failure: str
    raw: str
    attempts: int
    room: str
    character: str


class UsageQueries:
    def __init__(self, store: Store) -> None:
        self._store = store

    def daily(self, since: str) -> list[DailyUsage]:
        """Per day, role and model, newest day first; `since` is a date."""
        rows = self._store.query(
            "SELECT day, role, provider || '/' || model AS target, sum(calls), sum(failed), sum(stopped),"
            " sum(tokens_in), sum(tokens_out), sum(usd_micros) / 1e6, sum(total_ms) / 1e3,"
            " max(priced = 'assumed') FROM llm_usage WHERE day >= ?"
            " GROUP BY day, role, target ORDER BY day DESC, role, target",
            (since,),
        )
        return [DailyUsage(*(*row[:-1], bool(row[-1]))) for row in rows]

    def room_total(self, room: str, since: str) -> tuple[int, int, float]:
        """Calls, tokens and dollars of one room since a date."""
        sql = "SELECT coalesce(sum(calls), 0), coalesce(sum(tokens_in + tokens_out), 0), coalesce(sum(usd_micros), 0)"
        ((calls, tokens, micros),) = self._store.query(
            f"{sql} FROM llm_usage WHERE room = ? AND day >= ?", (room, since)
        )
        return int(calls), int(tokens), micros / 1e6

    def total_since(self, event: int) -> tuple[int, float]:
        """Calls and dollars after an event id, without free models."""
        calls, micros = self._store.reader.sum_payload_field(
            STREAM, ModelCalled.kind, "usd_micros", after=event, unless=("priced", "free")
        )
        return calls, micros / 1e6

    def failures(self, limit: int, before: int | None = None) -> list[ClassifierFailure]:
        """Newest first; `before` is the id to continue from."""
        rows = self._store.query(
            "SELECT id, at, role, schema_name, model, failure, raw, attempts, room, character FROM classifier_failure"
            " WHERE id < coalesce(?, 1 << 62) ORDER BY id DESC LIMIT ?",
            (before, limit),
        )
        return [ClassifierFailure(row[0], datetime.fromisoformat(row[1]), *row[2:]) for row in rows]
