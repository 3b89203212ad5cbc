"""Runs commands of workers in a bubblewrap sandbox, or refuses to run them.

A confined command has no network, no environment of ours, a read-only system, one writable folder, resource limits and
a system call filter. The first use probes whether confinement works: a broken or ineffective bubblewrap counts as
none, and commands are refused. Only `sandbox = "off"` overrides that.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import math
import os
import platform
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from coterie.base.folders import Folder
from coterie.base.logging import get_logger
from coterie.modes.desk.errors import BadCommand, SandboxUnavailable
from coterie.modes.desk.sandbox.files import SHARED
from coterie.modes.desk.sandbox.limits import CommandTotals, CommandWatch
from coterie.modes.desk.settings import DeskSettings

_log = get_logger(__name__)

DEFAULT_TIMEOUT_S = 60.0
MAX_TIMEOUT_S = 300.0
OUTPUT_BYTES = 50_000
_PROBE_TIMEOUT_S, _PROBE_AGAIN_S = 15.0, 60.0
_READ_BYTES = 16_384
_REAP_TIMEOUT_S = 10.0
_INFO_BYTES = 4096
_WORKSPACE = "/workspace"
_FIRST_USER_ID, _USER_IDS = 61_184, 4_336
"""The range that systemd reserves for dynamic users."""
_ETC_FILES = ("alternatives", "ld.so.cache", "localtime")
_OUTER_SCRIPT = 'echo 1000 > /proc/self/oom_score_adj; [ -z "$0" ] || echo $$ > "$0"; exec "$@"'
"""Runs before bubblewrap: joins the cgroup, and makes the command the first to be killed when the machine runs out of
memory. Inside, /proc is read-only, so that a command cannot undo it."""
_INNER_SCRIPT = f'cd {_WORKSPACE} && exec "$@"'
_PROBE_SCRIPT = """
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
    limits: str = ""
    """Who limits the memory and the processes of all commands together."""


@dataclass(frozen=True)
class CommandResult:
    code: int
    output: str
    """Standard output and standard error in the order of writing."""
    truncated: bool = False
    timed_out: bool = False
    stopped: str = ""
    """The limit that the command exceeded, if it was stopped for that."""


_UNCONFINED = SandboxStatus(
    "off",
    'Commands run unconfined: sandbox = "off" is set. Commands that a model chooses run with your permissions.',
    "Remove that line from [desk] in the settings, unless this whole machine is a sandbox.",
)
_CGROUP = "The kernel limits the memory and the processes of all commands together (cgroup)."
_WATCH = (
    "Without a cgroup of its own, the server adds up the memory of all commands several times a second and stops those"
    " that use too much; a command can exceed the limit for a moment."
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
        self._status: SandboxStatus | None = None
        self._probing = asyncio.Lock()
        self._probe_again_at = math.inf
        self._bwrap = ""
        self._totals = CommandTotals(settings)

    async def status(self) -> SandboxStatus:
        """The result of the probe, which runs once, and again later if the machine was too busy for it."""
        async with self._probing:
            if self._status is None or time.monotonic() >= self._probe_again_at:
                self._probe_again_at = math.inf
                self._status = _UNCONFINED if self._settings.sandbox == "off" else await self._probe()
                if self._status.state != "confined":
                    _log.warning("sandbox", state=self._status.state, why=self._status.reason)
            return self._status

    async def run(
        self,
        argv: Sequence[str],
        workspace: Path,
        *,
        shared: Mapping[str, Path] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> CommandResult:
        """Run a program with a workspace that it can change, and `shared` files that it can read below /shared."""
        status = await self.status()
        if status.state == "refused":
            raise SandboxUnavailable(f"Commands are not run here: {status.reason}", status.fix)
        if not argv or any("\0" in argument for argument in argv):
            raise BadCommand("A command needs at least one word and no NUL characters.", "Give the program to run.")
        timeout_s = min(max(timeout_s, 1.0), MAX_TIMEOUT_S)
        if status.state == "off":
            _log.warning("unconfined command", arguments=len(argv))
            return await run_command([*self._limit_command(timeout_s), *argv], timeout_s, cwd=workspace)
        return await self._run_confined(argv, workspace, timeout_s, shared or {})

    async def _probe(self) -> SandboxStatus:
        if platform.system() != "Linux":
            return SandboxStatus(
                "refused", "there is no sandbox on this system.", "Run Coterie on Linux to run commands."
            )
        if not seccomp_supported():
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
        with _probe_folders() as (workspace, outside):
            result = await self._run_confined(
                ["/bin/sh", "-c", _PROBE_SCRIPT, "probe", str(outside)], workspace, _PROBE_TIMEOUT_S, {}
            )
        findings = result.output.split()
        if result.timed_out:
            self._probe_again_at = time.monotonic() + _PROBE_AGAIN_S
            return SandboxStatus(
                "refused", "bubblewrap did not answer in time.", "Try again in a minute: the machine may be too busy."
            )
        if "writes-workspace" not in findings:
            why = result.output.strip()[:300] or f"it exited with {result.code} and no output"
            return SandboxStatus("refused", f"bubblewrap is installed but does not work: {why}", _ALLOW_NAMESPACES)
        leaks = {"sees-outside", "writes-system"} & set(findings)
        networks = {finding for finding in findings if finding.startswith("net:[")}
        if leaks or not networks or _own_network() in networks:
            return SandboxStatus("refused", f"what is installed as {self._bwrap} does not confine anything.", _INSTALL)
        await asyncio.to_thread(self._totals.prepare)
        return SandboxStatus(
            "confined", limits=_CGROUP if self._totals.cgroup else f"{_WATCH} {self._totals.no_cgroup}"
        )

    async def _run_confined(
        self, argv: Sequence[str], workspace: Path, timeout_s: float, shared: Mapping[str, Path]
    ) -> CommandResult:
        async with self._totals.slots:
            user_id = await asyncio.to_thread(_chown_workspace, workspace) if os.geteuid() == 0 else None
            watch = await asyncio.to_thread(self._totals.begin, workspace)
            group = self._totals.cgroup.create() if self._totals.cgroup is not None else None
            try:
                with _memory_file(seccomp_program()) as seccomp, _memory_file(b"") as info:
                    command = [
                        *("/bin/sh", "-c", _OUTER_SCRIPT, str(group / "cgroup.procs") if group else ""),
                        *(self._bwrap, *_namespaces(user_id), *_system_mounts(), *_shared_mounts(shared)),
                        *("--bind", str(workspace), _WORKSPACE, "--chdir", "/", "--remount-ro", "/"),
                        *("--seccomp", str(seccomp), "--info-fd", str(info), "--"),
                        *self._limit_command(timeout_s),
                        *_drop_privileges(user_id),
                        *("/bin/sh", "-c", _INNER_SCRIPT, "sh", *argv),
                    ]
                    exceeded = functools.partial(watch.watch, functools.partial(_first_process, info))
                    try:
                        result = await run_command(command, timeout_s, pass_fds=(seccomp, info), exceeded=exceeded)
                    finally:
                        await asyncio.shield(reap_processes(info))
            finally:
                # Also after a cancellation: the files that exceed the limits must not stay.
                reason = await asyncio.shield(self._finish(watch, group))
        return dataclasses.replace(result, stopped=result.stopped or reason)

    async def _finish(self, watch: CommandWatch, group: Path | None) -> str:
        try:
            if group is not None and self._totals.cgroup is not None:
                await self._totals.cgroup.remove(group)
            return await asyncio.to_thread(watch.finish)
        finally:
            self._totals.end(watch)

    def _limit_command(self, timeout_s: float) -> list[str]:
        prlimit = shutil.which("prlimit")
        if prlimit is None:  # only possible unconfined
            return []
        limits = {
            "nproc": self._settings.command_processes,
            "as": self._settings.command_memory_mb << 20,
            "fsize": self._settings.command_file_mb << 20,
            "cpu": int(timeout_s) + 1,
            "nofile": 256,
            "core": 0,
        }
        return [prlimit, *(f"--{name}={value}" for name, value in limits.items()), "--"]


def _namespaces(user_id: int | None) -> list[str]:
    """Root needs no user namespace for the others, and drops its privileges afterwards."""
    unshare = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    options = ["--new-session", "--die-with-parent", "--hostname", "desk", "--clearenv", "--cap-drop", "ALL"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": _WORKSPACE, "TMPDIR": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - the sandbox's own
    for name, value in environment.items():
        options += ["--setenv", name, value]
    if user_id is None:
        return ["--unshare-user", "--uid", "1000", "--gid", "1000", *unshare, *options]
    return [*unshare, *options, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]


def _drop_privileges(user_id: int | None) -> list[str]:
    if user_id is None:
        return []
    return [
        shutil.which("setpriv") or "setpriv",
        f"--reuid={user_id}",
        f"--regid={user_id}",
        "--clear-groups",
        "--inh-caps=-all",
        "--",
    ]


def _system_mounts() -> Iterator[str]:
    """Read-only programs and libraries, a private /proc and /dev, and a small temporary /tmp."""
    yield from ("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/nix", "/nix")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        else:
            yield from ("--ro-bind-try", str(path), str(path))
    yield from ("--perms", "0755", "--dir", "/etc")
    for name in _ETC_FILES:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
    for mount in ("/tmp", "/dev/shm"):  # noqa: S108 - the sandbox's own
        yield from ("--perms", "1777", "--size", str(64 << 20), "--tmpfs", mount)


def _shared_mounts(shared: Mapping[str, Path]) -> Iterator[str]:
    folders = {SHARED, *(str(PurePosixPath(SHARED, name).parent) for name in shared)}
    for folder in sorted(folders):
        yield from ("--perms", "0755", "--dir", folder)
    for name, source in shared.items():
        yield from ("--ro-bind-try", str(source), f"{SHARED}/{name}")


def _chown_workspace(workspace: Path) -> int:
    """The user id that owns the workspace; files of root are first given to an id of the workspace's own."""
    with Folder.open(workspace) as folder:
        status = os.fstat(folder.descriptor)
        owner = status.st_uid or _FIRST_USER_ID + status.st_ino % _USER_IDS
        folder.give_to(owner)
    return owner


def _own_network() -> str:
    return str(Path("/proc/self/ns/net").readlink())


@contextmanager
def _probe_folders() -> Iterator[tuple[Path, Path]]:
    """An empty workspace, and a file beside it that must be invisible inside."""
    with tempfile.TemporaryDirectory(prefix="coterie-probe-") as folder:
        workspace, outside = Path(folder, "workspace"), Path(folder, "outside")
        workspace.mkdir()
        outside.touch()
        yield workspace, outside


@contextmanager
def _memory_file(data: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("coterie", 0)
    try:
        os.write(descriptor, data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


async def run_command(
    argv: Sequence[str],
    timeout_s: float,
    *,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    exceeded: Callable[[], Awaitable[str]] | None = None,
) -> CommandResult:
    """Run a program without our environment and open files; cancelling this kills its process group.

    `exceeded` returns once the program has to be stopped before its time, with the reason.
    """
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=write_end,
            stderr=write_end,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    output = _Output()
    timed_out, stopped = False, ""
    watch: asyncio.Task[None] | None = None

    async def stop_when_exceeded(until: Callable[[], Awaitable[str]]) -> None:
        nonlocal stopped
        stopped = await until()
        deadline.reschedule(asyncio.get_running_loop().time())

    try:
        async with asyncio.timeout(timeout_s) as deadline, _pipe_reader(read_end) as reader:
            watch = asyncio.create_task(stop_when_exceeded(exceeded)) if exceeded is not None else None
            await output.read(reader)
            await process.wait()
    except TimeoutError:
        timed_out = not stopped
    finally:
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
    text = output.kept.decode(errors="replace")
    return CommandResult(process.returncode or 0, text, output.truncated, timed_out, stopped)


@asynccontextmanager
async def _pipe_reader(descriptor: int) -> AsyncIterator[asyncio.StreamReader]:
    """Our own pipe: a child that inherits the other end cannot delay the end of the command."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    try:
        yield reader
    finally:
        transport.close()


class _Output:
    def __init__(self) -> None:
        self.kept = bytearray()
        self.truncated = False

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read everything, so that the program never blocks, and keep the first `OUTPUT_BYTES`."""
        while chunk := await reader.read(_READ_BYTES):
            free = OUTPUT_BYTES - len(self.kept)
            self.kept += chunk[:free]
            self.truncated = self.truncated or len(chunk) > free
            # Endless output must not starve the timeout and other tasks of the event loop.
            await asyncio.sleep(0.005 if self.truncated else 0)


async def reap_processes(info: int) -> None:
    """Kill what a sandboxed command left running, and wait until it is gone.

    bubblewrap returns before its leftover processes end, and these could still write to the workspace. `info` is the
    file of bubblewrap's `--info-fd`, empty if it failed early.
    """
    process = _first_process(info)
    if process is None:
        return
    try:
        init = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        # Process ids are reused: another program may have this one by now.
        if _first_process(info) is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(init, signal.SIGKILL)
            await _wait_for_exit(init)
    except TimeoutError:
        _log.warning("processes of a command do not end", waited_s=_REAP_TIMEOUT_S)
    finally:
        os.close(init)


def _first_process(info: int) -> int | None:
    """The first process of a command's namespace, while it runs."""
    written = os.pread(info, _INFO_BYTES, 0)
    try:
        started = json.loads(written) if written else None
    except ValueError:  # it is being written just now
        return None
    if started is None or not _in_pid_namespace(started["child-pid"], started["pid-namespace"]):
        return None
    return int(started["child-pid"])


def _in_pid_namespace(process: int, namespace: int) -> bool:
    try:
        return Path(f"/proc/{process}/ns/pid").stat().st_ino == namespace
    except FileNotFoundError:
        return False


async def _wait_for_exit(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    exited = asyncio.Event()
    loop.add_reader(pidfd, exited.set)
    try:
        async with asyncio.timeout(_REAP_TIMEOUT_S):
            await exited.wait()
    finally:
        loop.remove_reader(pidfd)


# The system call filter refuses what helps a process to escape: namespaces, mounts, memory of other processes, keys,
# kernel modules and files by handle; and memory that would belong to no process. Socket families outside the network
# namespace (such as vsock) are refused, too.


_SYSCALLS = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "syslog": (103, 116),
    "acct": (163, 89),
    "swapon": (167, 224),
    "reboot": (169, 142),
    "open_by_handle_at": (304, 265),
    "kexec_file_load": (320, 294),
    "quotactl": (179, 60),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "memfd_secret": (447, 447),
    "clone": (56, 220),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "clone3": (435, 435),
}
_CHECKED_SYSCALLS = ("clone", "ioctl", "socket", "clone3")
"""Refused for certain arguments only."""
_AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""In the order of the numbers in `_SYSCALLS`."""

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX insert keystrokes into a terminal."""
_SOCKET_FAMILIES = (1, 2, 10)
"""Unix, IPv4 and IPv6."""

_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in `struct seccomp_data`; of the arguments, the lower half."""
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def seccomp_supported(machine: str | None = None) -> bool:
    return (machine or platform.machine()) in _AUDIT_ARCHITECTURES


def seccomp_program(machine: str | None = None) -> bytes:
    """The filter as a classic BPF program."""
    machine = machine or platform.machine()
    column = list(_AUDIT_ARCHITECTURES).index(machine)
    numbers = {name: both[column] for name, both in _SYSCALLS.items()}
    steps = _bpf_steps(_AUDIT_ARCHITECTURES[machine], numbers)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


_BpfStep = tuple[int, int, int, int]
"""Operation (0x15: equal, 0x35: at least, 0x45: any of these bits), steps to skip if true and if false, value."""


def _bpf_steps(architecture: int, numbers: Mapping[str, int]) -> list[_BpfStep]:
    steps = [_load(_ARCHITECTURE), (0x15, 1, 0, architecture), _return(_KILL), _load(_NUMBER)]
    # The x32 calls of x86_64 have this bit set and would match none of the numbers below.
    steps += [(0x35, 0, 1, 0x40000000), _return(_KILL)]
    for name, number in numbers.items():
        if name not in _CHECKED_SYSCALLS:
            steps += [(0x15, 0, 1, number), _refuse(_EPERM)]
    # A filter cannot read its flags, which are in memory; without it the C library falls back to clone.
    steps += [(0x15, 0, 1, numbers["clone3"]), _refuse(_ENOSYS)]
    steps += [(0x15, 0, 4, numbers["clone"]), _load(_FIRST), (0x45, 0, 1, _NAMESPACE_FLAGS), _refuse(_EPERM)]
    steps += [_return(_ALLOW)]
    steps += [(0x15, 0, 5, numbers["ioctl"]), _load(_SECOND)]
    steps += [(0x15, 1, 0, _TERMINAL_INPUT[0]), (0x15, 0, 1, _TERMINAL_INPUT[1]), _refuse(_EPERM)]
    steps += [_return(_ALLOW)]
    steps += [(0x15, 0, 5, numbers["socket"]), _load(_FIRST)]
    steps += [(0x15, 3 - place, 0, family) for place, family in enumerate(_SOCKET_FAMILIES)]
    steps += [_refuse(_EAFNOSUPPORT)]
    return [*steps, _return(_ALLOW)]


def _load(offset: int) -> _BpfStep:
    return (0x20, 0, 0, offset)


def _return(action: int) -> _BpfStep:
    return (0x06, 0, 0, action)


def _refuse(errno: int) -> _BpfStep:
    return _return(0x00050000 | errno)
