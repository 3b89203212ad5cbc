"""What is around the house: the port, the clock, the tools, the parts that settings ask for, the models' keys.

None of it is ours, and each is a way in which a fresh machine, or one that changed overnight, keeps it from working.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from coterie.base.clock import Clock
from coterie.base.errors import InUse
from coterie.base.home import Paths
from coterie.kernel import LogReader
from coterie.kernel.lock import ProcessLock
from coterie.llm.standing import ProviderHealth
from coterie.ops.doctor import Check, CheckResult

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
