"""Health checks of an installation: each reports a state and, for a problem, what to do."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError, InUse
from coterie.base.paths import Paths
from coterie.eventstore import MIGRATIONS, LogReader, ProcessLock, Projection, sqlite_version, unknown_kinds
from coterie.llm import ProviderHealth
from coterie.messaging import Outbox, OutboxProjection, SkippedInputs, SkippedInputsProjection
from coterie.ops.backups import check_database_present, list_backups

_LOW_DISK_BYTES = 1 << 30
_HEALTH_TIMEOUT_S = 10.0
_SEE_STATUS_PAGE = "Status & costs in the web page shows the error and what to do."
_WAL_BUG_FIXED_IN = (3, 51, 3)

CheckState = Literal["ok", "note", "bad"]


@dataclass(frozen=True)
class CheckResult:
    about: str
    state: CheckState
    what: str
    fix: str = ""


Check = Callable[[], Iterator[CheckResult]]


class Doctor:
    """Runs the checks of the machine, the data folder and the database, and those of other packages.

    A check that raises becomes a result. `log_checks` read the log; if it is unreadable they are skipped.
    """

    def __init__(
        self,
        paths: Paths,
        projections: Sequence[Projection],
        clock: Clock,
        extra_checks: Sequence[Check] = (),
        log_checks: Sequence[Check] = (),
    ) -> None:
        self._paths = paths
        self._projections = projections
        self._clock = clock
        self._log_checks = log_checks
        self._checks: list[Check] = [
            self._machine,
            self._folder,
            self._server,
            self._database,
            self._backups,
            *extra_checks,
        ]

    def run(self) -> Iterator[CheckResult]:
        unreadable = False
        for check in [*self._checks, *self._log_checks]:
            if unreadable and check in self._log_checks:
                continue
            try:
                yield from check()
            except CoterieError as error:
                unreadable |= check == self._database
                yield CheckResult(_about(check), "bad", error.what, error.fix)
            except OSError as error:
                yield CheckResult(_about(check), "bad", str(error), "Check the permissions of that file or folder.")

    def _machine(self) -> Iterator[CheckResult]:
        yield CheckResult("Python", "ok", ".".join(map(str, sys.version_info[:3])))
        sqlite = sqlite_version()
        if tuple(map(int, sqlite.split("."))) < _WAL_BUG_FIXED_IN:
            yield CheckResult("SQLite", "bad", f"{sqlite} can damage its journal", "Upgrade apsw: pip install -U apsw")
        else:
            yield CheckResult("SQLite", "ok", sqlite)

    def _folder(self) -> Iterator[CheckResult]:
        root = self._paths.root
        if not root.exists():
            yield CheckResult(
                "Data folder", "note", f"{root} does not exist yet", "The first `coterie serve` creates it."
            )
            return
        self._paths.prepare()
        yield CheckResult("Data folder", "ok", str(root))
        free = shutil.disk_usage(root).free
        if free < _LOW_DISK_BYTES:
            yield CheckResult("Disk", "bad", f"only {free >> 20} MB are free", "Free some space, or move COTERIE_HOME.")
        else:
            yield CheckResult("Disk", "ok", f"{free >> 30} GB free")
        mode = root.stat().st_mode
        if os.name == "posix" and mode & 0o077:
            yield CheckResult("Privacy", "note", "other users of this machine can read the folder", f"chmod 700 {root}")

    def _server(self) -> Iterator[CheckResult]:
        if not self._paths.root.exists():
            return
        lock = ProcessLock(self._paths.database)
        try:
            lock.acquire()
            yield CheckResult("Server", "ok", "not running")
        except InUse as busy:
            yield CheckResult("Server", "ok", busy.what)
        finally:
            lock.release()

    def _database(self) -> Iterator[CheckResult]:
        check_database_present(self._paths)
        if not self._paths.database.exists():
            yield CheckResult("Database", "note", "there is none yet", "The first `coterie serve` creates it.")
            return
        reader = LogReader(self._paths.database)
        try:
            problems = [line for (line,) in reader.query("PRAGMA quick_check") if line != "ok"]
            if problems:
                yield CheckResult(
                    "Database",
                    "bad",
                    f"the file is damaged: {problems[0]}",
                    "Restore a backup with `coterie restore`.",
                )
                return
            if self._needs_migration(reader):
                what = "written by an older Coterie: the next start migrates it"
                yield CheckResult("Schema", "note", what, "Take a backup first, with `coterie backup`; then start it.")
                return
            yield CheckResult("Database", "ok", f"{reader.last_id()} events")
            yield from self._compatibility(reader)
            built = reader.projection_fingerprints()
            outdated = [item.name for item in self._projections if built.get(item.name) != item.fingerprint]
            if outdated:
                yield CheckResult("Projections", "note", f"{', '.join(outdated)} will be rebuilt at the next start")
            else:
                yield CheckResult("Projections", "ok", f"{len(self._projections)} current")
            dead = reader.jobs.find(state="dead", limit=5)
            for job in dead:
                what = f"{job.key} failed: {job.error}"
                yield CheckResult(f"Job {job.kind}", "bad", what, "Fix the cause, then retry it.")
            if not dead:
                yield CheckResult("Jobs", "ok", "none failed")
        finally:
            reader.close()

    def _needs_migration(self, reader: LogReader) -> bool:
        applied = set(reader.migrations())
        return bool(applied) and applied < {migration.__name__ for migration in MIGRATIONS}

    def _compatibility(self, reader: LogReader) -> Iterator[CheckResult]:
        """Problems that keep this version from opening the file."""
        upgrade = "Upgrade Coterie, or open it with the version that wrote it."
        known = {migration.__name__ for migration in MIGRATIONS}
        newer = [name for name in reader.migrations() if name not in known]
        if newer:
            yield CheckResult("Schema", "bad", f"written by a newer Coterie (it has {', '.join(newer)})", upgrade)
        for kind, version in unknown_kinds(reader.event_kinds()):
            yield CheckResult("Events", "bad", f"{kind} (version {version}) is not known to this Coterie", upgrade)

    def _backups(self) -> Iterator[CheckResult]:
        backups = list_backups(self._paths.backups)
        if not backups:
            yield CheckResult("Backups", "note", "there are none yet", "Take one with `coterie backup`.")
            return
        taken = datetime.fromtimestamp(backups[0].stat().st_mtime, tz=self._clock.now().tzinfo)
        age = self._clock.now() - taken
        if age > timedelta(days=2):
            yield CheckResult(
                "Backups", "note", f"the newest is {age.days} days old", "Take one with `coterie backup`."
            )
        else:
            yield CheckResult("Backups", "ok", f"{len(backups)}, the newest of {taken:%Y-%m-%d %H:%M} UTC")


def _about(check: Check) -> str:
    return check.__name__.strip("_").capitalize()


_MAX_DELIVERIES_SHOWN = 5


def deliveries_check(paths: Paths) -> Check:
    """Messages that were not delivered, or may have been shown twice."""

    def deliveries() -> Iterator[CheckResult]:
        if not paths.database.exists():
            return
        with closing(LogReader(paths.database)) as reader:
            fingerprints = reader.projection_fingerprints()
            if fingerprints.get(OutboxProjection.name) != OutboxProjection().fingerprint:
                return  # written by another version: the table is rebuilt at the next start
            uncertain = Outbox(reader).uncertain()
        failed = [delivery for delivery in uncertain if delivery.state == "failed"]
        for delivery in failed[-_MAX_DELIVERIES_SHOWN:]:
            room = f"{delivery.outgoing.room.surface} {delivery.outgoing.room.id}"
            yield CheckResult("Delivery", "bad", f"a message to {room} failed: {delivery.error}", "Fix the cause.")
        if twice := len(uncertain) - len(failed):
            yield CheckResult(
                "Delivery", "note", f"messages possibly shown twice after a crash or a lost connection: {twice}"
            )
        if not uncertain:
            yield CheckResult("Delivery", "ok", "no failed or uncertain messages")

    return deliveries


def skipped_inputs_check(paths: Paths) -> Check:
    """Events of platforms that could not be read."""

    def skipped_inputs() -> Iterator[CheckResult]:
        if not paths.database.exists():
            return
        with closing(LogReader(paths.database)) as reader:
            fingerprints = reader.projection_fingerprints()
            if fingerprints.get(SkippedInputsProjection.name) != SkippedInputsProjection().fingerprint:
                return  # written by another version: the table is built at the next start
            counts = SkippedInputs(reader).counts()
        for surface, count in counts.items():
            yield CheckResult(
                "Skipped",
                "note",
                f"{surface} sent {count} events that could not be read",
                "See the system status page.",
            )

    return skipped_inputs


_COMPILERS = ("cc", "gcc", "clang")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CLOCK_TOLERANCE = timedelta(minutes=2)
_SET_CLOCK = "Set the machine's clock, for example with `timedatectl set-ntp true`."


@dataclass(frozen=True)
class RequiredPackage:
    """A Python package that a setting needs."""

    module: str
    extra: str
    required_by: str


def port_check(paths: Paths, host: str, number: int) -> Check:
    def port() -> Iterator[CheckResult]:
        if number == 0 or _running(paths):
            return
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, number))
            except OSError as error:
                yield _port_problem(host, number, error)
                return
        yield CheckResult("Port", "ok", f"{host}:{number} is free")

    return port


def running_server_check(paths: Paths, host: str, number: int, fetch: Callable[[str], Any] | None = None) -> Check:
    """Ask the server that runs, if one does, which of its background tasks have a problem."""

    def server_health() -> Iterator[CheckResult]:
        if not _running(paths):
            return
        address = host if host not in ("", "0.0.0.0", "::") else "127.0.0.1"  # noqa: S104 - compared, not bound
        url = f"http://{f'[{address}]' if ':' in address else address}:{number}/health"
        try:
            health = (fetch or _fetch_json)(url)
            parts = [(str(part["name"]), part) for part in health.get("parts", ())]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            fix = "If it was started with another port, set server.port in the settings; otherwise restart it."
            yield CheckResult("Background tasks", "note", f"the server does not answer at {url} ({error})", fix)
            return
        for name, part in parts:
            what = f"{name}: {part.get('error') or part.get('status')}"
            yield CheckResult("Background tasks", "bad", what, part.get("fix") or _SEE_STATUS_PAGE)
        if not parts:
            yield CheckResult("Background tasks", "ok", "all of them work")

    return server_health


def _fetch_json(url: str) -> Any:
    import httpx

    try:
        return httpx.get(url, timeout=_HEALTH_TIMEOUT_S, trust_env=False).json()
    except httpx.HTTPError as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def clock_check(paths: Paths, system_clock: Clock) -> Check:
    def clock() -> Iterator[CheckResult]:
        if not paths.database.exists():
            return
        with closing(LogReader(paths.database)) as reader:
            last = reader.last_time()
        if last is None:
            return
        ahead = last - system_clock.now()
        if ahead > _CLOCK_TOLERANCE:
            what = f"it is {_duration(ahead)} behind the newest event"
            yield CheckResult("Clock", "bad", what, _SET_CLOCK)
        else:
            yield CheckResult("Clock", "ok", "later than the newest event")

    return clock


def tools_check(find: Callable[[str], str | None] = shutil.which) -> Check:
    """Optional programs: a compiler for packages without wheels, and a browser for the tests."""

    def tools() -> Iterator[CheckResult]:
        if not any(find(name) for name in _COMPILERS):
            yield CheckResult(
                "Compiler",
                "note",
                "there is none; packages without a wheel for this machine cannot be installed",
                "Install one: apt install build-essential",
            )
        if not any(find(name) for name in (os.environ.get("CHROMIUM", ""), *_BROWSERS) if name):
            yield CheckResult(
                "Browser",
                "note",
                "there is no Chromium; `make test` needs it for the browser tests",
                "Install it (apt install chromium), or set CHROMIUM=/path/to/it.",
            )

    return tools


def packages_check(required: Iterable[RequiredPackage]) -> Check:
    def packages() -> Iterator[CheckResult]:
        missing = [package for package in required if importlib.util.find_spec(package.module) is None]
        for package in missing:
            fix = f"pip install 'coterie[{package.extra}]'" if package.extra else "Set it up again: make clean install"
            what = f"{package.required_by} needs {package.module}, which is not installed"
            yield CheckResult("Package", "bad", what, fix)
        if not missing:
            yield CheckResult("Packages", "ok", "everything that the settings need is installed")

    return packages


def providers_check(check: Callable[[], Sequence[ProviderHealth]]) -> Check:
    def providers() -> Iterator[CheckResult]:
        for health in check():
            yield CheckResult(f"Models of {health.provider}", health.state, health.what, health.fix)

    return providers


def _port_problem(host: str, number: int, error: OSError) -> CheckResult:
    if error.errno == errno.EADDRINUSE:
        fix = f"Stop that program, or use another port: coterie serve --port {number + 1 if number < 65_535 else 8000}"
        return CheckResult("Port", "bad", f"another program listens on {host}:{number}", fix)
    if error.errno == errno.EACCES:
        return CheckResult("Port", "bad", f"only root may listen on {number}", "Use a port above 1023: --port 8000")
    return CheckResult("Port", "bad", f"{host}:{number} cannot be used ({error.strerror})", "Check [server] host.")


def _running(paths: Paths) -> bool:
    if not paths.root.exists():
        return False
    lock = ProcessLock(paths.database)
    try:
        lock.acquire()
    except InUse:
        return True
    finally:
        lock.release()
    return False


def _duration(span: timedelta) -> str:
    hours, seconds = divmod(int(span.total_seconds()), 3_600)
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours} hours" if hours else f"{seconds // 60} minutes"
