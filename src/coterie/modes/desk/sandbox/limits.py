"""Totals of the sandbox: memory and processes of all commands, disk space and files of a workspace.

Limits that the system sets per process do not add up to a total. Where the server may divide its cgroup (version 2),
the kernel limits memory and processes. Elsewhere a watch adds up several times a second what the processes of a command
hold, and stops the command. Disk space is watched in both cases, because quotas of file systems need an administrator.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from coterie.base.folders import Folder, Usage
from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.modes.desk.settings import DeskSettings

_log = get_logger(__name__)

_MEMORY_INTERVAL_S = 0.1
_DISK_INTERVAL_S = 0.25
_DISK_SHARE = 4
"""A measurement may take this part of the time: after one that took a second, the next begins 4 seconds later."""
MIN_FREE_BYTES = 256 << 20
"""Commands are stopped if the file system has less than this left."""
_SERVER_GROUP, _COMMANDS_GROUP = "coterie-server", "coterie-commands"
_CONTROLLERS = frozenset({"memory", "pids"})
_DELEGATE = "Run the server as a systemd service with `Delegate=memory pids`, as in deploy/coterie.service."


class NoCgroup(Exception):
    """There is no cgroup for commands; the text is the reason."""


class Cgroup:
    """A cgroup of version 2 in which every command gets one of its own."""

    def __init__(self, commands: Path, settings: DeskSettings) -> None:
        self._commands = commands
        self._settings = settings

    @classmethod
    def prepare(cls, settings: DeskSettings, proc: Path = Path("/proc")) -> Cgroup:
        """Divide the server's own cgroup; `NoCgroup` where that is not possible or not allowed."""
        own = delegated_cgroup(proc)
        try:
            if (own / "cgroup.type").exists():  # all but the root: a divided group must not have processes of its own
                server = own / _SERVER_GROUP
                server.mkdir(exist_ok=True)
                for process in (own / "cgroup.procs").read_text().split():
                    with suppress(ProcessLookupError):
                        _write(server / "cgroup.procs", process)
            commands = own / _COMMANDS_GROUP
            _write(own / "cgroup.subtree_control", "+memory +pids")
            commands.mkdir(exist_ok=True)
            _write(commands / "cgroup.subtree_control", "+memory +pids")
            processes = settings.command_processes * settings.commands_at_once
            _limit(commands, settings.commands_memory_mb, processes)
        except OSError as error:
            raise NoCgroup(f"The server's cgroup cannot be divided ({error.strerror}).") from error
        return cls(commands, settings)

    def create(self) -> Path:
        """A group for one command."""
        group = self._commands / new_id()
        group.mkdir()
        _limit(group, self._settings.command_memory_mb, self._settings.command_processes)
        # All processes of a command end together; with one of them gone, the others would do half of the work.
        _write(group / "memory.oom.group", "1")
        return group

    async def remove(self, group: Path) -> None:
        """End what is left in a group, and delete it."""
        with suppress(OSError):  # before Linux 5.14 there is none; the namespace's processes are killed anyway
            _write(group / "cgroup.kill", "1")
        for _ in range(50):
            try:
                group.rmdir()  # noqa: ASYNC240 - not a disk
            except FileNotFoundError:
                return
            except OSError:
                await asyncio.sleep(0.02)
            else:
                return
        _log.warning("a cgroup was not removed", group=str(group))


def delegated_cgroup(proc: Path = Path("/proc")) -> Path:
    """The cgroup that the server may divide; `NoCgroup` with the reason if there is none."""
    mounts = [line.split(" - ") for line in _read(proc / "self/mountinfo").splitlines()]
    points = [fields.split()[4] for fields, rest in mounts if rest.startswith("cgroup2 ")]
    paths = [line[3:] for line in _read(proc / "self/cgroup").splitlines() if line.startswith("0::")]
    if not points or not paths:
        raise NoCgroup("This system has no cgroup of version 2.")
    own = Path(points[0], paths[0].lstrip("/"))
    if own.name == _SERVER_GROUP:  # the server was restarted in place
        own = own.parent
    if not set(_read(own / "cgroup.controllers").split()) >= _CONTROLLERS:
        raise NoCgroup("The cgroup of the server has no controllers for memory and processes.")
    if not (own == Path(points[0]) or _is_delegated(own)) or not os.access(own / "cgroup.subtree_control", os.W_OK):
        raise NoCgroup(f"The cgroup of the server is not delegated to it. {_DELEGATE}")
    return own


def _is_delegated(group: Path) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            return os.getxattr(group, name) == b"1"
    return False


def _limit(group: Path, memory_mb: int, processes: int) -> None:
    _write(group / "memory.max", str(memory_mb << 20))
    _write(group / "pids.max", str(processes))
    with suppress(OSError):  # a system without swap has no such file
        _write(group / "memory.swap.max", "0")


def _write(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@dataclass
class HeldMemory:
    """What processes hold in memory, and on the disk without a name."""

    private: int = 0
    shared: int = 0
    unnamed_files: int = 0

    @property
    def memory(self) -> int:
        return self.private + self.shared


def process_tree(process: int) -> Iterator[int]:
    """A process and all of its descendants."""
    pending = [process]
    while pending:
        current = pending.pop()
        yield current
        with suppress(OSError):
            for thread in Path(f"/proc/{current}/task").iterdir():
                pending += map(int, _read(thread / "children").split())


def held_memory(process: int, disk_device: int) -> HeldMemory:
    """What a process and its descendants hold.

    Memory is what belongs to them alone, what is swapped out, and memory that has no other name than a descriptor or a
    mapping. Deleted files on the workspace's device are counted for the disk.
    """
    held = HeldMemory()
    shared: dict[tuple[int, int], int] = {}
    for each in process_tree(process):
        values = dict(line.split(":", 1) for line in _read(Path(f"/proc/{each}/status")).splitlines() if ":" in line)
        held.private += sum(_kilobytes(values.get(name, "")) for name in ("RssAnon", "VmSwap"))
        for identity, size in (*_shared_mappings(each), *_deleted_files(each)):
            shared[identity] = max(size, shared.get(identity, 0))
    for (device, _), size in shared.items():
        if device == disk_device:
            held.unnamed_files += size
        else:
            held.shared += size
    return held


def exact_private_memory(process: int) -> int:
    """The private part of `held_memory`, with pages that a process shares with its children counted once. Slower."""
    total = 0
    for each in process_tree(process):
        rollup = dict(
            line.split(":", 1) for line in _read(Path(f"/proc/{each}/smaps_rollup")).splitlines() if ":" in line
        )
        total += sum(_kilobytes(rollup.get(name, "")) for name in ("Pss_Anon", "SwapPss"))
    return total


def _kilobytes(value: str) -> int:
    words = value.split()
    return int(words[0]) << 10 if words else 0


def _shared_mappings(process: int) -> Iterator[tuple[tuple[int, int], int]]:
    """Mapped files without a name, such as shared memory: pages that are in no process's own count."""
    for line in _read(Path(f"/proc/{process}/maps")).splitlines():
        if line.endswith(" (deleted)"):
            addresses, permissions, _, device, inode, *_ = line.split()
            if permissions.endswith("s"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                major, minor = (int(part, 16) for part in device.split(":"))
                yield (os.makedev(major, minor), int(inode)), end - start


def _deleted_files(process: int) -> Iterator[tuple[tuple[int, int], int]]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):  # noqa: PTH208 - names only
            with suppress(OSError):
                status = os.stat(f"/proc/{process}/fd/{name}")  # noqa: PTH116 - a link of the kernel's own
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    yield (status.st_dev, status.st_ino), status.st_blocks * 512


@dataclass(eq=False)
class CommandWatch:
    """Watches one command until it exceeds a limit."""

    totals: CommandTotals
    workspace: Path
    max_bytes: int
    max_files: int
    within: Usage
    """The last measurement that was within the limits."""
    held: HeldMemory = field(default_factory=HeldMemory)
    disk_exceeded: bool = False

    async def watch(self, first_process: Callable[[], int | None]) -> str:
        """Returns why the command has to be stopped, once that is so."""
        next_disk = time.monotonic()
        while True:
            await asyncio.sleep(_MEMORY_INTERVAL_S)
            if reason := await asyncio.to_thread(self.totals.check_memory, self, first_process()):
                return reason
            if time.monotonic() >= next_disk:
                began = time.monotonic()
                if reason := await asyncio.to_thread(self.check_disk):
                    return reason
                took = time.monotonic() - began
                next_disk = time.monotonic() + max(_DISK_INTERVAL_S, _DISK_SHARE * took)

    def check_disk(self) -> str:
        """Why the workspace exceeds its limits; nothing if it does not."""
        with Folder.open(self.workspace) as folder:
            usage = folder.usage(max_bytes=self.max_bytes - self.held.unnamed_files, max_files=self.max_files)
            free = os.fstatvfs(folder.descriptor)
        self.disk_exceeded = True
        if usage.bytes + self.held.unnamed_files > self.max_bytes:
            return f"the files of the workspace may use {self.max_bytes >> 20} MB together"
        if usage.files > self.max_files:
            return f"the workspace may contain {self.max_files} files and folders"
        if usage.too_deep:
            return "folders are nested too deeply"
        if free.f_bavail * free.f_frsize < MIN_FREE_BYTES:
            return "the disk of this machine is almost full"
        self.disk_exceeded = False
        self.within = usage
        return ""

    def finish(self) -> str:
        """Check once more, after the last process is gone, and remove what exceeds the limits."""
        self.held = HeldMemory()
        reason = self.check_disk()
        if self.disk_exceeded:
            with Folder.open(self.workspace) as folder:
                folder.cut_back(self.within)
        return reason


class CommandTotals:
    """The totals of all commands of a sandbox."""

    def __init__(self, settings: DeskSettings) -> None:
        self._settings = settings
        self.slots = asyncio.Semaphore(settings.commands_at_once)
        self._running: list[CommandWatch] = []
        self.cgroup: Cgroup | None = None
        self.no_cgroup = ""

    def prepare(self) -> None:
        try:
            self.cgroup = Cgroup.prepare(self._settings)
        except NoCgroup as missing:
            self.no_cgroup = str(missing)

    def begin(self, workspace: Path) -> CommandWatch:
        """Bring a workspace into a state in which a command can run, and begin to watch it.

        A workspace that is too full already may still be used, so that files can be deleted, but not grow.
        """
        with Folder.open(workspace) as folder:
            usage = folder.usage()
            if usage.too_deep:
                moved = folder.flatten()
                _log.warning("folders were nested too deeply and are at the top of the workspace now", folders=moved)
                usage = folder.usage()
        watch = CommandWatch(
            self,
            workspace,
            max(self._settings.workspace_mb << 20, usage.bytes),
            max(self._settings.workspace_files, usage.files),
            usage,
        )
        self._running.append(watch)
        return watch

    def end(self, watch: CommandWatch) -> None:
        self._running.remove(watch)

    def check_memory(self, watch: CommandWatch, process: int | None) -> str:
        """Why a command, whose first process this is, exceeds the memory limits; nothing if it does not."""
        if process is None:
            return ""
        watch.held = held_memory(process, watch.workspace.stat().st_dev)
        if self.cgroup is not None:
            return ""  # the kernel limits it
        limit, total = self._settings.command_memory_mb << 20, self._settings.commands_memory_mb << 20
        used = sum(each.held.memory for each in self._running)
        largest = max(self._running, key=lambda each: each.held.memory, default=watch)
        if watch.held.memory <= limit and (used <= total or largest is not watch):
            return ""
        # Counted exactly before anything is stopped: processes share pages.
        watch.held.private = exact_private_memory(process) or watch.held.private
        if watch.held.memory > limit:
            return f"a command may use {self._settings.command_memory_mb} MB of memory"
        if sum(each.held.memory for each in self._running) > total:
            return f"all commands together may use {self._settings.commands_memory_mb} MB of memory"
        return ""
