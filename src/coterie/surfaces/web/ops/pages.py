"""The system status page: background tasks and jobs, failures, model usage and spending, backups."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from fastapi import APIRouter, Request, Response

from coterie.base.redaction import redact
from coterie.eventstore import Store
from coterie.llm import DailyUsage, Models, Role, UsageQueries
from coterie.messaging import SkippedInputs
from coterie.ops import Health
from coterie.surfaces.web.ops import routes
from coterie.surfaces.web.shared.dependencies import BackupsDep, DeskDep, HealthCheck, MemoryDep, ModelsDep, StoreDep
from coterie.surfaces.web.shared.labels import DisplayNamesDep
from coterie.surfaces.web.shared.templates import fragment_response, page_response

router = APIRouter(prefix="/ops", include_in_schema=False)
_DAYS = 30
_FAILURES = 20
_JOBS = 12
_SKIPPED = 20


@dataclass(frozen=True)
class DayUsage:
    day: date
    usd: float
    tokens: int
    calls: int
    failed: int


@dataclass(frozen=True)
class ModelUsage:
    """The usage of one model over the period."""

    model: str
    calls: int
    failed: int
    tokens_in: int
    tokens_out: int
    usd: float
    seconds: float


@router.get("")
async def status_page(
    store: StoreDep,
    memory: MemoryDep,
    desk: DeskDep,
    models: ModelsDep,
    backups: BackupsDep,
    health: HealthCheck,
    display_names: DisplayNamesDep,
    request: Request,
) -> Response:
    today = date.fromisoformat(models.ledger.today)
    spending = UsageQueries(store).daily((today - timedelta(days=_DAYS - 1)).isoformat())
    failures = UsageQueries(store).failures(_FAILURES)
    skipped = SkippedInputs(store)
    return page_response(
        request,
        "ops/status.html",
        **await _now(store, models, health),
        days=_usage_by_day(spending, today),
        used=_usage_by_model(spending),
        failures=[(one, redact(one.raw)) for one in failures],
        models=[
            one for one in await routes.models(store, models) if one.calls_today or Role(one.role).fallback_role is None
        ],
        people=display_names,
        snapshots=backups.snapshots(),
        backups=backups.backups(),
        embedding=memory.embedding_worker.status(),
        sandbox=await desk.sandbox.status(),
        skipped=skipped.latest(_SKIPPED),
        skipped_counts=skipped.counts(),
        tool_servers=list(desk.mcp_servers.states.values()),
    )


@router.get("/now")
async def now(store: StoreDep, models: ModelsDep, health: HealthCheck) -> Response:
    """The part of the page that refreshes itself."""
    return fragment_response("ops/status_now.html", **await _now(store, models, health))


@router.get("/embedding")
async def embedding(memory: MemoryDep) -> Response:
    return fragment_response("ops/embedding.html", embedding=memory.embedding_worker.status())


async def _now(store: Store, models: Models, health: Callable[[], Health]) -> dict[str, Any]:
    dead = await routes.jobs(store, state="dead", limit=_JOBS)
    recent = await routes.jobs(store, state=None, limit=_JOBS)
    ledger = models.ledger
    return {
        "counts": dead.counts,
        "dead": dead.jobs,
        "recent": recent.jobs,
        "spent": ledger.total(),
        "caps": models.settings.caps,
        "health": health(),
    }


def _usage_by_day(spending: list[DailyUsage], today: date) -> list[DayUsage]:
    by_day: dict[str, list[DailyUsage]] = defaultdict(list)
    for one in spending:
        by_day[one.day].append(one)
    days = []
    for back in reversed(range(_DAYS)):
        day = today - timedelta(days=back)
        usage = by_day[day.isoformat()]
        tokens, usd = sum(one.tokens_in + one.tokens_out for one in usage), sum(one.usd for one in usage)
        days.append(DayUsage(day, usd, tokens, sum(one.calls for one in usage), sum(one.failed for one in usage)))
    return days


def _usage_by_model(spending: list[DailyUsage]) -> list[ModelUsage]:
    by_model: dict[str, list[DailyUsage]] = defaultdict(list)
    for one in spending:
        by_model[one.model].append(one)
    rows = [
        ModelUsage(
            model,
            sum(one.calls for one in of),
            sum(one.failed for one in of),
            sum(one.tokens_in for one in of),
            sum(one.tokens_out for one in of),
            sum(one.usd for one in of),
            sum(one.seconds for one in of),
        )
        for model, of in by_model.items()
    ]
    return sorted(rows, key=lambda one: -one.calls)
