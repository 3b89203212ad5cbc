"""Looking the house over: each check says how things are and, where they are not well, what to do."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from coterie.base.clock import Clock
from coterie.base.errors import CoterieError, InUse
from coterie.base.home import Paths
from coterie.kernel import LogReader, Projection
from coterie.kernel.database import sqlite_version
from coterie.kernel.events import unknown_kinds
from coterie.kernel.lock import ProcessLock
from coterie.kernel.migrations import MIGRATIONS
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
