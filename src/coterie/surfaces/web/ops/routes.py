"""The API for operations: backups, jobs, failures, spending and models.

During a restore another server answers in place of this one. The `Coterie-Run` header of `/health` identifies a run, by
which a page recognises the restarted server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Query, Request, status
from pydantic import Field

from coterie.base.redaction import redact
from coterie.base.values import Int64
from coterie.eventstore import Job, JobState
from coterie.llm import ClassifierFailure, DailyUsage, Models, Role, RoleUnset, Target, UsageQueries, probe_model
from coterie.ops import RestoreUnavailable, StoredCopy
from coterie.surfaces.web.shared.dependencies import BackupsDep, ModelsDep, StoreDep
from coterie.surfaces.web.shared.errors import ERROR_RESPONSES
from coterie.surfaces.web.story.schemas import DoneResponse, RequestModel, ResponseModel

backups_router = APIRouter(prefix="/backups", tags=["ops"], responses=ERROR_RESPONSES)


@dataclass(frozen=True)
class RestoreResponse:
    file: str
    run: str
    """The present run; the next one has the restored data."""


@backups_router.get("", summary="Backups, newest first")
async def backups(backups: BackupsDep) -> list[StoredCopy]:
    return backups.backups()


@backups_router.post("", summary="Make a backup now, while the server runs", status_code=status.HTTP_201_CREATED)
async def take(backups: BackupsDep) -> StoredCopy:
    return await backups.take_backup()


@backups_router.post(
    "/{file}/restore",
    summary="Restore a backup: it is verified, the present data is kept aside, and the server restarts",
    status_code=status.HTTP_202_ACCEPTED,
)
async def restore(request: Request, backups: BackupsDep, file: str, later: BackgroundTasks) -> RestoreResponse:
    start_anew: Callable[[], None] | None = request.app.state.start_anew
    if start_anew is None:
        raise RestoreUnavailable(
            "This server cannot restart itself.",
            f"Stop it, then run: coterie restore {backups.folder / file}",
        )
    await backups.request_restore(file)
    later.add_task(start_anew)
    return RestoreResponse(file, request.app.state.run)


# Jobs, failures, spending, models


router = APIRouter(tags=["ops"], responses=ERROR_RESPONSES)


class JobResponse(ResponseModel):
    id: int
    kind: str
    key: str
    payload: dict[str, Any]
    state: JobState
    attempt: int
    max_attempts: int
    run_at: str
    error: str | None

    @classmethod
    def of(cls, job: Job) -> JobResponse:
        return cls(
            id=job.id,
            kind=job.kind,
            key=job.key,
            payload=dict(job.payload),
            state=job.state,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            run_at=job.run_at.isoformat(),
            error=None if job.error is None else redact(job.error),
        )


class JobsResponse(ResponseModel):
    counts: dict[str, int]
    """Jobs by state."""
    jobs: list[JobResponse]
    """Newest first."""


class RoleModelResponse(ResponseModel):
    role: str
    model: str
    """`provider/model`; the first of a role is used, the others are fallbacks."""
    free: bool
    has_key: bool
    context: int | None
    cooldown_s: float
    """Remaining cooldown after a rate limit; 0 if it can be used."""
    calls_today: int
    failed_today: int


class ModelTestRequest(RequestModel):
    model: Annotated[str, Field(max_length=300)]
    """A role (`narrative`), or `provider/model`."""


class ModelTestResponse(ResponseModel):
    model: str
    text: str
    first_token_ms: float | None
    total_ms: float
    tokens_per_s: float
    tokens_in: int
    tokens_out: int
    json_ok: bool
    """Whether it returned valid structured output."""
    json_failure: str
    memory_mb: float | None
    """Memory use of the embedded model's process."""


@router.get("/ops/jobs", summary="Background jobs by state")
async def jobs(
    store: StoreDep, state: JobState | None = None, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> JobsResponse:
    counts = store.reader.jobs.count_by_state()
    jobs = await store.jobs.find(state=state, limit=limit)
    return JobsResponse(counts=counts, jobs=[JobResponse.of(job) for job in jobs])


@router.post("/ops/jobs/{job}/retry", summary="Retry a failed job")
async def retry(store: StoreDep, job: Int64) -> DoneResponse:
    await store.jobs.retry(job)
    return DoneResponse()


@router.get("/ops/failures", summary="Failed structured answers, for which the default was used")
async def failures(
    store: StoreDep,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    before: Annotated[Int64 | None, Query(ge=1)] = None,
) -> list[ClassifierFailure]:
    return UsageQueries(store).failures(limit, before)


@router.get("/ops/spend", summary="Model usage and cost per day, role and model")
async def spend(
    store: StoreDep, models: ModelsDep, days: Annotated[int, Query(ge=1, le=3_660)] = 30
) -> list[DailyUsage]:
    today = date.fromisoformat(models.ledger.today)
    return UsageQueries(store).daily((today - timedelta(days=days - 1)).isoformat())


@router.get("/ops/models", summary="Models by role and their health")
async def models(store: StoreDep, models: ModelsDep) -> list[RoleModelResponse]:
    today = UsageQueries(store).daily(models.ledger.today)
    return [_model(models, role, target, today) for role in Role for target in _chain(models, role)]


@router.post("/models/test", summary="Test a model without fallbacks: streaming, speed, structured output")
async def test_model(models: ModelsDep, body: ModelTestRequest) -> ModelTestResponse:
    which = body.model
    target = models.catalogue.chain(Role(which))[0] if which in list(Role) else Target.parse(which)
    models.catalogue.spec(target.provider)
    parts: list[str] = []
    trial = await probe_model(models.settings, target, parts.append, running=models)
    return ModelTestResponse(
        model=trial.answer.model,
        text=redact("".join(parts)),
        first_token_ms=trial.answer.first_token_ms,
        total_ms=trial.answer.total_ms,
        tokens_per_s=trial.tokens_per_s,
        tokens_in=trial.answer.tokens.input,
        tokens_out=trial.answer.tokens.output,
        json_ok=trial.structured.failure is None,
        json_failure=trial.structured.failure.failure if trial.structured.failure else "",
        memory_mb=trial.memory_mb,
    )


def _chain(models: Models, role: Role) -> tuple[Target, ...]:
    try:
        return models.catalogue.chain(role)
    except RoleUnset:
        return ()


def _model(models: Models, role: Role, target: Target, today: list[DailyUsage]) -> RoleModelResponse:
    spec = models.catalogue.spec(target.provider)
    calls = [one for one in today if (one.role, one.model) == (role.value, str(target))]
    return RoleModelResponse(
        role=role.value,
        model=str(target),
        free=spec.free,
        has_key=spec.api_key is not None,
        context=models.catalogue.details(target).context,
        cooldown_s=round(models.cooldown_remaining(target), 1),
        calls_today=sum(one.calls for one in calls),
        failed_today=sum(one.failed for one in calls),
    )
