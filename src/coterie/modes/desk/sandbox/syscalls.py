"""Which system calls a sandboxed command may not make, as a program for the kernel's filter.

Namespaces, mounts, other processes' memory, keys, kernel modules and handles to files by number are of no use to a
confined command and of much use to one that wants out. Sockets are left for the families that live in the network
namespace: a vsock, for one, would reach the machine's host through it.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping

_X86_64 = {
    "unshare": 272,
    "setns": 308,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "keyctl": 250,
    "add_key": 248,
    "request_key": 249,
    "bpf": 321,
    "perf_event_open": 298,
    "userfaultfd": 323,
    "kexec_load": 246,
    "init_module": 175,
    "finit_module": 313,
    "delete_module": 176,
    "syslog": 103,
    "acct": 163,
    "swapon": 167,
    "reboot": 169,
    "open_by_handle_at": 304,
    "kexec_file_load": 320,
    "quotactl": 179,
    "clone": 56,
    "ioctl": 16,
    "socket": 41,
}
_AARCH64 = {
    "unshare": 97,
    "setns": 268,
    "mount": 40,
    "umount2": 39,
    "pivot_root": 41,
    "chroot": 51,
    "ptrace": 117,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "keyctl": 219,
    "add_key": 217,
    "request_key": 218,
    "bpf": 280,
    "perf_event_open": 241,
    "userfaultfd": 282,
    "kexec_load": 104,
    "init_module": 105,
    "finit_module": 273,
    "delete_module": 106,
    "syslog": 116,
    "acct": 89,
    "swapon": 224,
    "reboot": 142,
    "open_by_handle_at": 265,
    "kexec_file_load": 294,
    "quotactl": 60,
    "clone": 220,
    "ioctl": 29,
    "socket": 198,
}
_EVERYWHERE = {
    "io_uring_setup": 425,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
    "clone3": 435,
}
_CHECKED = ("clone", "ioctl", "socket", "clone3")
_MACHINES = {"x86_64": (0xC000003E, _X86_64), "aarch64": (0xC00000B7, _AARCH64)}

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_TYPE_FOR_SOMEBODY = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX put keystrokes into a terminal."""
_FAMILIES = (1, 2, 10)
"""Unix, IPv4 and IPv6."""

_NUMBER, _ARCH, _FIRST, _SECOND = 0, 4, 16, 24
"""Where things stand in what the kernel shows the filter; of the arguments, the lower half."""
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def known_here(machine: str | None = None) -> bool:
    return (machine or platform.machine()) in _MACHINES


def program(machine: str | None = None) -> bytes:
    """The filter in the kernel's own form (classic BPF)."""
    arch, numbers = _MACHINES[machine or platform.machine()]
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(arch, {**numbers, **_EVERYWHERE}))


_Step = tuple[int, int, int, int]
"""What to do (0x15: equal, 0x35: at least, 0x45: any of these bits), steps to skip if so and if not, a value."""


def _steps(arch: int, numbers: Mapping[str, int]) -> list[_Step]:
    steps = [_load(_ARCH), (0x15, 1, 0, arch), _return(_KILL), _load(_NUMBER)]
    # The x32 calls of x86_64 carry this bit and would slip past every number below.
    steps += [(0x35, 0, 1, 0x40000000), _return(_KILL)]
    for name, number in numbers.items():
        if name not in _CHECKED:
            steps += [(0x15, 0, 1, number), _refuse(_EPERM)]
    # Its flags lie in memory, where a filter cannot look; without it the C library uses clone.
    steps += [(0x15, 0, 1, numbers["clone3"]), _refuse(_ENOSYS)]
    steps += [(0x15, 0, 4, numbers["clone"]), _load(_FIRST), (0x45, 0, 1, _NEW_NAMESPACES), _refuse(_EPERM)]
    steps += [_return(_ALLOW)]
    steps += [(0x15, 0, 5, numbers["ioctl"]), _load(_SECOND)]
    steps += [(0x15, 1, 0, _TYPE_FOR_SOMEBODY[0]), (0x15, 0, 1, _TYPE_FOR_SOMEBODY[1]), _refuse(_EPERM)]
    steps += [_return(_ALLOW)]
    steps += [(0x15, 0, 5, numbers["socket"]), _load(_FIRST)]
    steps += [(0x15, 3 - place, 0, family) for place, family in enumerate(_FAMILIES)]
    steps += [_refuse(_EAFNOSUPPORT)]
    return [*steps, _return(_ALLOW)]


def _load(offset: int) -> _Step:
    return (0x20, 0, 0, offset)


def _return(action: int) -> _Step:
    return (0x06, 0, 0, action)


def _refuse(errno: int) -> _Step:
    return _return(0x00050000 | errno)
