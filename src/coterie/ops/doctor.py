"""Looking the house over: each check says how things are and, where they are not well, what to do."""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError, InUse
from coterie.base.paths import Paths
from coterie.eventstore import MIGRATIONS, LogReader, ProcessLock, Projection, sqlite_version, unknown_kinds
from coterie.llm import ProviderHealth
from coterie.messaging import Outbox, OutboxProjection
from coterie.ops.backups import list_backups

_LITTLE_SPACE = 1 << 30
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
    """`more` are the checks of other rooms; a check that fails is itself a finding, never a crash.

    `of_log` are those that read the log: where it cannot be read, that is said once, and they are left out.
    """

    def __init__(
        self,
        home: Paths,
        views: Sequence[Projection],
        clock: Clock,
        extra_checks: Sequence[Check] = (),
        log_checks: Sequence[Check] = (),
    ) -> None:
        self._home = home
        self._views = views
        self._clock = clock
        self._of_log = log_checks
        self._checks: list[Check] = [
            self._machine,
            self._folder,
            self._owner,
            self._database,
            self._backups,
            *extra_checks,
        ]

    def run(self) -> Iterator[CheckResult]:
        unreadable = False
        for check in [*self._checks, *self._of_log]:
            if unreadable and check in self._of_log:
                continue
            try:
                yield from check()
            except CoterieError as error:
                unreadable |= check == self._database
                yield CheckResult(_about(check), "bad", error.what, error.fix)
            except OSError as error:
                yield CheckResult(_about(check), "bad", str(error), "Check the permissions of that file or folder.")

    def _machine(self) -> Iterator[CheckResult]:
        version = ".".join(map(str, sys.version_info[:3]))
        yield CheckResult("Python", "ok", version)
        found = sqlite_version()
        if tuple(map(int, found.split("."))) < _WAL_BUG_FIXED_IN:
            yield CheckResult("SQLite", "bad", f"{found} can damage its journal", "Upgrade apsw: pip install -U apsw")
        else:
            yield CheckResult("SQLite", "ok", found)

    def _folder(self) -> Iterator[CheckResult]:
        root = self._home.root
        if not root.exists():
            yield CheckResult(
                "Data folder", "note", f"{root} is not there yet", "It is made by the first `coterie serve`."
            )
            return
        self._home.prepare()
        yield CheckResult("Data folder", "ok", str(root))
        free = shutil.disk_usage(root).free
        if free < _LITTLE_SPACE:
            yield CheckResult("Disk", "bad", f"only {free >> 20} MB are free", "Make room, or move COTERIE_HOME.")
        else:
            yield CheckResult("Disk", "ok", f"{free >> 30} GB free")
        mode = root.stat().st_mode
        if os.name == "posix" and mode & 0o077:
            yield CheckResult(
                "Privacy", "note", "other users of this machine can look into the folder", f"chmod 700 {root}"
            )

    def _owner(self) -> Iterator[CheckResult]:
        if not self._home.root.exists():
            return
        lock = ProcessLock(self._home.database)
        try:
            lock.acquire()
            yield CheckResult("Server", "ok", "not running")
        except InUse as busy:
            yield CheckResult("Server", "ok", busy.what)
        finally:
            lock.release()

    def _database(self) -> Iterator[CheckResult]:
        if not self._home.database.exists():
            yield CheckResult("Database", "note", "there is none yet", "It is made by the first `coterie serve`.")
            return
        reader = LogReader(self._home.database)
        try:
            problems = [line for (line,) in reader.query("PRAGMA quick_check") if line != "ok"]
            if problems:
                yield CheckResult(
                    "Database",
                    "bad",
                    f"the file is damaged: {problems[0]}",
                    "Put a backup back with `coterie restore`.",
                )
                return
            if self._is_older(reader):
                what = "written by an older Coterie: the next start brings it up to date"
                yield CheckResult("Schema", "note", what, "Take a backup first, with `coterie backup`; then start it.")
                return
            yield CheckResult("Database", "ok", f"{reader.last_id()} events")
            yield from self._readable(reader)
            known = reader.projection_fingerprints()
            stale = [view.name for view in self._views if known.get(view.name) != view.fingerprint]
            if stale:
                yield CheckResult("Views", "note", f"{', '.join(stale)} will be folded anew at the next start")
            else:
                yield CheckResult("Views", "ok", f"{len(self._views)} current")
            dead = reader.jobs.find(state="dead", limit=5)
            for job in dead:
                what = f"{job.key} was given up: {job.error}"
                yield CheckResult(f"Job {job.kind}", "bad", what, "Mend the cause, then retry it.")
            if not dead:
                yield CheckResult("Jobs", "ok", "none given up")
        finally:
            reader.close()

    def _is_older(self, reader: LogReader) -> bool:
        applied = set(reader.migrations())
        return bool(applied) and applied < {migration.__name__ for migration in MIGRATIONS}

    def _readable(self, reader: LogReader) -> Iterator[CheckResult]:
        """What would keep this version from opening the file."""
        upgrade = "Upgrade Coterie, or open it with the version that wrote it."
        ours = {migration.__name__ for migration in MIGRATIONS}
        newer = [name for name in reader.migrations() if name not in ours]
        if newer:
            yield CheckResult("Schema", "bad", f"written by a newer Coterie (it has {', '.join(newer)})", upgrade)
        for kind, version in unknown_kinds(reader.event_kinds()):
            yield CheckResult("Events", "bad", f"{kind} (version {version}) is not known to this Coterie", upgrade)

    def _backups(self) -> Iterator[CheckResult]:
        backups = list_backups(self._home.backups)
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


# Messages whose fate somebody should know: never delivered, or perhaps shown twice. D21


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


# What is around the house: the port, the clock, the tools, the parts that settings ask for, the models' keys.
#
# None of it is ours, and each is a way in which a fresh machine, or one that changed overnight, keeps it from working.


_COMPILERS = ("cc", "gcc", "clang")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_AHEAD = timedelta(minutes=2)
_UNSYNCHRONISED = "Set the machine's clock, for example with `timedatectl set-ntp true`."


@dataclass(frozen=True)
class RequiredPackage:
    """A part that some setting asks for."""

    module: str
    extra: str
    wanted_by: str


def port_check(home: Paths, host: str, number: int) -> Check:
    def port() -> Iterator[CheckResult]:
        if number == 0 or _running(home):
            return
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, number))
            except OSError as error:
                yield _refused(host, number, error)
                return
        yield CheckResult("Port", "ok", f"{host}:{number} is free")

    return port


def clock_check(home: Paths, now: Clock) -> Check:
    def clock() -> Iterator[CheckResult]:
        if not home.database.exists():
            return
        reader = LogReader(home.database)
        try:
            last = reader.last_time()
        finally:
            reader.close()
        if last is None:
            return
        ahead = last - now.now()
        if ahead > _AHEAD:
            what = f"it is {_told(ahead)} behind the last thing that happened here"
            yield CheckResult("Clock", "bad", what, _UNSYNCHRONISED)
        else:
            yield CheckResult("Clock", "ok", "after everything that happened here")

    return clock


def tools_check(find: Callable[[str], str | None] = shutil.which) -> Check:
    """Nothing here is needed to run Coterie as it is installed; each is missed on some day."""

    def tools() -> Iterator[CheckResult]:
        if not any(find(name) for name in _COMPILERS):
            yield CheckResult(
                "Compiler",
                "note",
                "there is none; parts without a ready-made wheel for this machine cannot be installed",
                "Install one: apt install build-essential",
            )
        if not any(find(name) for name in (os.environ.get("CHROMIUM", ""), *_BROWSERS) if name):
            yield CheckResult(
                "Browser",
                "note",
                "there is no Chromium; `make test` needs it for the pages",
                "Install it (apt install chromium), or say CHROMIUM=/path/to/it.",
            )

    return tools


def packages_check(needs: Iterable[RequiredPackage]) -> Check:
    def parts() -> Iterator[CheckResult]:
        missing = [need for need in needs if importlib.util.find_spec(need.module) is None]
        for need in missing:
            fix = f"pip install 'coterie[{need.extra}]'" if need.extra else "Set it up again: make clean install"
            yield CheckResult("Part", "bad", f"{need.wanted_by} needs {need.module}, which is not installed", fix)
        if not missing:
            yield CheckResult("Parts", "ok", "everything that the settings ask for is installed")

    return parts


def providers_check(standings: Callable[[], Sequence[ProviderHealth]]) -> Check:
    def providers() -> Iterator[CheckResult]:
        for standing in standings():
            yield CheckResult(f"Models of {standing.provider}", standing.state, standing.what, standing.fix)

    return providers


def _refused(host: str, number: int, error: OSError) -> CheckResult:
    if error.errno == errno.EADDRINUSE:
        fix = f"Stop that program, or take another: coterie serve --port {number + 1 if number < 65_535 else 8000}"
        return CheckResult("Port", "bad", f"another program listens on {host}:{number}", fix)
    if error.errno == errno.EACCES:
        return CheckResult("Port", "bad", f"only root may listen on {number}", "Take one above 1023: --port 8000")
    return CheckResult(
        "Port", "bad", f"nobody can listen on {host}:{number} ({error.strerror})", "Check [server] host."
    )


def _running(home: Paths) -> bool:
    if not home.root.exists():
        return False
    lock = ProcessLock(home.database)
    try:
        lock.acquire()
    except InUse:
        return True
    finally:
        lock.release()
    return False


def _told(span: timedelta) -> str:
    hours, seconds = divmod(int(span.total_seconds()), 3_600)
    if hours >= 48:
        return f"{hours // 24} days"
    return f"{hours} hours" if hours else f"{seconds // 60} minutes"
