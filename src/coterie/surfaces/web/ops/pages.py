"""The system status page: background tasks and jobs, failures, model usage and spending, backups; and the page
that is shown while a backup is restored.
"""

from __future__ import annotations

import json
import socket
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from fastapi import APIRouter, Request, Response

from coterie.base.redaction import redact
from coterie.eventstore import Store
from coterie.llm import DailyUsage, Models, Role, UsageQueries
from coterie.messaging import SkippedInputs
from coterie.ops import Health
from coterie.surfaces.web.ops import routes
from coterie.surfaces.web.shared.access import content_security_policy
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
    assumed: bool
    """Whether the dollars are an assumption."""


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
            any(one.assumed for one in of),
        )
        for model, of in by_model.items()
    ]
    return sorted(rows, key=lambda one: -one.calls)


# The page that is served while a backup is restored, by a server of its own at the same address.


_WHAT = "A backup is being restored."
_FIX = "Wait a moment; the page returns when it is done."
_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="1">'
    '<meta name="viewport" content="width=device-width"><title>Coterie</title>'
    "<h1>{what}</h1><p>{step} …</p><progress{how_far}></progress><p>{fix}</p></html>"
)


class RestorePage:
    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._at = ("", 0, 0)

    def set_progress(self, what: str, done: int, most: int) -> None:
        """The present step and its progress; `most` is 0 where the total is unknown."""
        self._at = (what, done, most)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        room = self

        class Answer(BaseHTTPRequestHandler):
            def answer(self) -> None:
                kind, body = room.body(wants_page="text/html" in self.headers.get("Accept", ""))
                self.send_response(503)
                self.send_header("Retry-After", "1")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", content_security_policy())
                self.send_header("Cache-Control", "no-store")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - as the library calls them

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """No access log."""

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in room._host else socket.AF_INET
            daemon_threads = True

        self._server = Server((self._host, self._port), Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="restore page")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def body(self, *, wants_page: bool) -> tuple[str, bytes]:
        step, done, most = self._at
        if not wants_page:
            payload = {"error": _WHAT, "fix": _FIX, "restoring": {"what": step, "done": done, "most": most}}
            return "application/json", json.dumps(payload).encode()
        how_far = f' value="{done}" max="{most}"' if most else ""
        page = _PAGE.format(what=escape(_WHAT), step=escape(step), how_far=how_far, fix=escape(_FIX))
        return "text/html; charset=utf-8", page.encode()
