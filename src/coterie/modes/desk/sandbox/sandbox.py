"""Where commands run: confined by bubblewrap, or not at all. D16

No network, no environment, a read-only system, one folder to write in, limits on everything, and a filter on
system calls. Whether that works here is found out by trying: a sandbox that is installed but broken, or that lets
everything through, counts as none, and then commands are refused. Only `sandbox = "off"` overrides that.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from coterie.base.logging import get_logger
from coterie.modes.desk.errors import BadCommand, SandboxUnavailable
from coterie.modes.desk.sandbox import process_reaper, syscalls
from coterie.modes.desk.sandbox.commands import OUTPUT_BYTES, CommandResult, run_command
from coterie.modes.desk.settings import DeskSettings

_log = get_logger(__name__)

DEFAULT_TIMEOUT_S = 60.0
LONGEST_TIMEOUT_S = 300.0
_INSIDE = "/workspace"
_OWN_USERS = 61_184
_OWN_USERS_COUNT = 4_336
"""The numbers that systemd sets aside for users that belong to nobody."""
_OF_ETC = ("alternatives", "ld.so.cache", "localtime")

_SET_OUT = f'echo 1000 > /proc/self/oom_score_adj; cd {_INSIDE} && exec "$@"'
"""When memory runs out, what the kernel ends first is this, and not the rest of the machine."""
_LOOK_AROUND = """
readlink /proc/self/ns/net
[ -e "$1" ] && echo sees-outside
touch /usr/.coterie-probe 2>/dev/null && rm -f /usr/.coterie-probe && echo writes-system
touch probe && rm probe && echo writes-workspace
"""


@dataclass(frozen=True)
class SandboxStatus:
    """Whether commands are run here, and if not, why and what to do."""

    state: str
    """`confined`, `refused` or `off`."""
    reason: str = ""
    fix: str = ""


_UNCONFINED = SandboxStatus(
    "off",
    'Commands run unconfined: sandbox = "off" is set. Whatever a model decides to run, it runs as you.',
    "Remove that line from [desk] in the settings, unless this whole machine is a sandbox.",
)
_INSTALL = "Install bubblewrap (apt install bubblewrap, dnf install bubblewrap), then restart."
_ALLOW_NAMESPACES = (
    "Allow user namespaces: on Ubuntu 24.04 and later with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
    " or an AppArmor profile for bwrap; in a container start it with --security-opt seccomp=unconfined, or"
    ' let the container be the sandbox and set sandbox = "off".'
)


class Sandbox:
    def __init__(self, settings: DeskSettings) -> None:
        self._settings = settings
        self._standing: SandboxStatus | None = None
        self._bwrap = ""

    async def status(self) -> SandboxStatus:
        """Found out once, by running it."""
        if self._standing is None:
            if self._settings.sandbox == "off":
                self._standing = _UNCONFINED
            else:
                self._standing = await self._probe()
            if self._standing.state != "confined":
                _log.warning("sandbox", state=self._standing.state, why=self._standing.reason)
        return self._standing

    async def run(self, argv: Sequence[str], workspace: Path, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> CommandResult:
        standing = await self.status()
        if standing.state == "refused":
            raise SandboxUnavailable(f"Commands are not run here: {standing.reason}", standing.fix)
        if not argv or any("\0" in word for word in argv):
            raise BadCommand("A command needs words, without NUL characters.", "Name what is to be run.")
        timeout_s = min(max(timeout_s, 1.0), LONGEST_TIMEOUT_S)
        if standing.state == "off":
            _log.warning("unconfined command", words=len(argv))
            return await run_command([*self._limits(timeout_s), *argv], timeout_s, cwd=workspace)
        return await self._confined(argv, workspace, timeout_s)

    async def _probe(self) -> SandboxStatus:
        if platform.system() != "Linux":
            return SandboxStatus(
                "refused", "there is no sandbox on this system.", "Run Coterie on Linux to run commands."
            )
        if not syscalls.known_here():
            return SandboxStatus(
                "refused", f"there is no filter for {platform.machine()}.", "Run it on x86_64 or aarch64."
            )
        self._bwrap = shutil.which("bwrap") or ""
        if not self._bwrap:
            return SandboxStatus("refused", "bubblewrap (bwrap) is not installed.", _INSTALL)
        missing = [name for name in ("prlimit", "setpriv") if shutil.which(name) is None]
        if missing:
            return SandboxStatus(
                "refused", f"{' and '.join(missing)} cannot be found.", "Install util-linux, then restart."
            )
        with _inside_and_outside() as (workspace, outside):
            ran = await self._confined(["/bin/sh", "-c", _LOOK_AROUND, "probe", str(outside)], workspace, 15.0)
        told = ran.output.split()
        if ran.timed_out or "writes-workspace" not in told:
            why = ran.output.strip()[:300] or f"it ended with {ran.code} and said nothing"
            return SandboxStatus("refused", f"bubblewrap is installed but does not work: {why}", _ALLOW_NAMESPACES)
        leaks = [word for word in ("sees-outside", "writes-system") if word in told]
        networks = {word for word in told if word.startswith("net:[")}
        if leaks or not networks or _our_network() in networks:
            return SandboxStatus("refused", f"what is installed as {self._bwrap} does not confine anything.", _INSTALL)
        return SandboxStatus("confined")

    async def _confined(self, argv: Sequence[str], workspace: Path, timeout_s: float) -> CommandResult:
        own_user = _given_away(workspace) if os.geteuid() == 0 else None
        with _as_file(syscalls.program()) as rules, _as_file(b"") as told:
            started = [
                *(self._bwrap, *_namespaces(own_user), *_system()),
                *("--bind", str(workspace), _INSIDE, "--chdir", "/", "--remount-ro", "/"),
                *("--seccomp", str(rules), "--info-fd", str(told), "--"),
                *self._limits(timeout_s),
                *_becoming(own_user),
                *("/bin/sh", "-c", _SET_OUT, "sh", *argv),
            ]
            try:
                return await run_command(started, timeout_s, pass_fds=(rules, told))
            finally:
                await asyncio.shield(process_reaper.reap_processes(told))

    def _limits(self, timeout_s: float) -> list[str]:
        prlimit = shutil.which("prlimit")
        if prlimit is None:  # only possible unconfined
            return []
        allowed = {
            "nproc": self._settings.command_processes,
            "as": self._settings.command_memory_mb << 20,
            "fsize": self._settings.command_file_mb << 20,
            "cpu": int(timeout_s) + 1,
            "nofile": 256,
            "core": 0,
        }
        return [prlimit, *(f"--{name}={value}" for name, value in allowed.items()), "--"]


def _namespaces(own_user: int | None) -> list[str]:
    """A real root needs no user namespace to set the others up, and leaves its powers behind right after."""
    apart = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    alone = ["--new-session", "--die-with-parent", "--hostname", "desk", "--clearenv", "--cap-drop", "ALL"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": _INSIDE, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - the sandbox's own
    for name, value in environment.items():
        alone += ["--setenv", name, value]
    if own_user is None:
        return ["--unshare-user", "--uid", "1000", "--gid", "1000", *apart, *alone]
    return [*apart, *alone, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]


def _becoming(own_user: int | None) -> list[str]:
    if own_user is None:
        return []
    return [
        shutil.which("setpriv") or "setpriv",
        f"--reuid={own_user}",
        f"--regid={own_user}",
        "--clear-groups",
        "--inh-caps=-all",
        "--",
    ]


def _system() -> Iterator[str]:
    """Programs and libraries to read, an own /proc and /dev, and a small /tmp that is gone afterwards."""
    yield from ("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/nix", "/nix")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        place = Path("/", name)
        if place.is_symlink():
            yield from ("--symlink", str(place.readlink()), str(place))
        else:
            yield from ("--ro-bind-try", str(place), str(place))
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in _OF_ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev")
    for small in ("/tmp", "/dev/shm"):  # noqa: S108 - the sandbox's own
        yield from ("--perms", "1777", "--size", str(64 << 20), "--tmpfs", small)


def _given_away(workspace: Path) -> int:
    """The user a workspace belongs to. One of root's is given to a user of its own first, with all that is in it."""
    owner = workspace.stat().st_uid
    if owner == 0:
        owner = _OWN_USERS + workspace.stat().st_ino % _OWN_USERS_COUNT
    for folder, names, files in os.walk(workspace):
        for path in (Path(folder), *(Path(folder, name) for name in (*names, *files))):
            with suppress(FileNotFoundError):  # another command may be tidying up
                found = path.lstat()
                if found.st_uid == 0 and (stat.S_ISDIR(found.st_mode) or found.st_nlink == 1):
                    os.chown(path, owner, owner, follow_symlinks=False)
    return owner


def _our_network() -> str:
    return str(Path("/proc/self/ns/net").readlink())


@contextmanager
def _inside_and_outside() -> Iterator[tuple[Path, Path]]:
    """An empty folder, and a file beside it that nobody in it should see."""
    with tempfile.TemporaryDirectory(prefix="coterie-probe-") as folder:
        workspace, outside = Path(folder, "workspace"), Path(folder, "outside")
        workspace.mkdir()
        outside.touch()
        yield workspace, outside


@contextmanager
def _as_file(data: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("coterie", 0)
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


__all__ = ["DEFAULT_TIMEOUT_S", "LONGEST_TIMEOUT_S", "OUTPUT_BYTES", "CommandResult", "Sandbox", "SandboxStatus"]
