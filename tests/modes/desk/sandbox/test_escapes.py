"""D16: attempts to escape from the sandbox. A successful one prints ESCAPED."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from coterie.modes.desk.sandbox.sandbox import CommandResult, Sandbox
from coterie.modes.desk.settings import DeskSettings

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")

_SYSCALL = "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
_MACHINE = os.uname().machine


@dataclass(frozen=True)
class Host:
    """Targets outside the sandbox: a file with a secret, listening sockets, our own process."""

    sandbox: Sandbox
    unconfined: Sandbox
    workspace: Path
    secret: Path
    port: int
    abstract: str

    async def run(self, script: str, *, confined: bool = True, timeout_s: float = 20.0) -> CommandResult:
        values = {"SECRET": str(self.secret), "PORT": str(self.port), "PID": str(os.getpid()), "NAME": self.abstract}
        for name, value in values.items():
            script = script.replace(f"@{name}@", value)
        box = self.sandbox if confined else self.unconfined
        return await box.run(["/bin/sh", "-c", script], self.workspace, timeout_s=timeout_s)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setenv("COTERIE_API_KEY", "from-the-environment")
    workspace = tmp_path / "workspace"
    workspace.mkdir(mode=0o700)
    secret = tmp_path / "secret.txt"
    secret.write_text("ESCAPED: the secret")
    abstract = f"coterie-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(f"\0{abstract}")
        unix.listen()
        settings = DeskSettings(command_memory_mb=512, command_file_mb=4)
        yield Host(
            Sandbox(settings),
            Sandbox(settings.model_copy(update={"sandbox": "off"})),
            workspace,
            secret,
            tcp.getsockname()[1],
            abstract,
        )


def python(code: str) -> str:
    return f"/usr/bin/env python3 - <<'END'\n{textwrap.dedent(code)}\nEND"


SAFE_ATTEMPTS = {
    "reads a file outside": "cat @SECRET@",
    "climbs out with dots": "cat ../../../../../../../../..@SECRET@",
    "follows a symbolic link out": "ln -s @SECRET@ out; cat out",
    "links a folder out": 'ln -s "$(dirname @SECRET@)" linked; cat linked/secret.txt',
    "makes a hard link out": "ln @SECRET@ hard && cat hard",
    "lists what lies beside it": '[ -e "$(dirname @SECRET@)" ] && echo ESCAPED',
    "reads a file through its parent's root": "cat /proc/@PID@/root@SECRET@",
    "uses a parent's working folder": "[ -e /proc/@PID@/cwd/. ] && echo ESCAPED",
    "sees processes outside": '[ -d /proc/@PID@ ] && grep -q "pytest\\|python" /proc/@PID@/cmdline && echo ESCAPED',
    "reads another's environment": 'tr "\\0" "\\n" < /proc/@PID@/environ | grep -q PATH && echo ESCAPED',
    "signals a process outside": "kill -0 @PID@ && echo ESCAPED",
    "connects to a port of ours": python(
        "import socket; socket.create_connection(('127.0.0.1', @PORT@), 3); print('ESCAPED')"
    ),
    "connects to an abstract socket": python(
        "import socket; s = socket.socket(socket.AF_UNIX); s.connect('\\0@NAME@'); print('ESCAPED')"
    ),
    "reads the user's home": '[ -n "$(ls -A /root /home 2>/dev/null)" ] && echo ESCAPED',
    "reads the machine's accounts": "[ -s /etc/passwd ] && echo ESCAPED",
    "leaves a file where others look": "touch /var/tmp/coterie-$$ && rm /var/tmp/coterie-$$ && echo ESCAPED",
    "sees the machine's own name": f'[ "$(uname -n)" = "{os.uname().nodename}" ] && echo ESCAPED',
    "finds our open files": "ls -l /proc/self/fd | grep -q 'coterie.db\\|secret' && echo ESCAPED; cat @SECRET@",
    "grows a file past the limit": "dd if=/dev/zero of=big bs=1M count=8 2>/dev/null; "
    "[ $(stat -c %s big) -gt 4194304 ] && echo ESCAPED; cat @SECRET@",
}
"""Attempts that succeed without a sandbox, as a test below checks."""

DANGEROUS_ATTEMPTS = {
    "finds a secret in its environment": "env | grep -q 'COTERIE\\|from-the-environment' && echo ESCAPED",
    "finds a secret of process 1": "tr '\\0' '\\n' < /proc/1/environ | grep -q COTERIE && echo ESCAPED",
    "finds a network card": "grep -v 'lo:' /proc/net/dev | grep -q : && echo ESCAPED",
    "resolves a name": python("import socket; socket.getaddrinfo('example.com', 80); print('ESCAPED')"),
    "sends to the outside": python(
        """
        import socket
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('192.0.2.1', 53)); print('ESCAPED')
        """
    ),
    "asks the machine's host": python(
        "import socket; socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM); print('ESCAPED')"
    ),
    "reads the wire": python("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW); print('ESCAPED')"),
    "writes to a program": "touch /usr/bin/coterie-was-here && echo ESCAPED",
    "writes to a setting": "mkdir -p /etc/coterie-was-here && echo ESCAPED",
    "writes to the root": "mkdir /coterie-was-here && echo ESCAPED",
    "writes to the kernel's settings": "echo x > /proc/sys/kernel/domainname && echo ESCAPED",
    "names a program for crashes": "echo '|/bin/false' > /proc/sys/kernel/core_pattern && echo ESCAPED",
    "uses the magic SysRq key": "[ -w /proc/sysrq-trigger ] && echo ESCAPED",
    "makes the system writable": "mount -o remount,rw /usr && echo ESCAPED",
    "mounts something": "mount -t tmpfs none /tmp && echo ESCAPED",
    "unmounts a cover": "umount /proc && echo ESCAPED",
    "becomes root of a namespace": "unshare --user --map-root-user true && echo ESCAPED",
    "makes a namespace by clone": python(
        _SYSCALL + f"n = {56 if _MACHINE == 'x86_64' else 220}; r = libc.syscall(n, 0x10000000 | 17, 0, 0, 0, 0)\n"
        "print('ESCAPED') if r > 0 else os._exit(0)"
    ),
    "enters another namespace": "nsenter --target 1 --mount --net true && echo ESCAPED",
    "changes its root": "chroot / true && echo ESCAPED",
    "becomes another user": python("import os; os.setuid(0); print('ESCAPED')"),
    "gains by a set-uid program": "cp /bin/sh s && chmod 4755 s && ./s -p -c '[ $(id -u) = 0 ]' && echo ESCAPED",
    "makes a device": "mknod disk b 8 0 && echo ESCAPED",
    "reads a disk": "for d in /dev/sd* /dev/vd* /dev/nvme* /dev/mem /dev/kmsg; do [ -r $d ] && echo ESCAPED; done",
    "traces a process": python(_SYSCALL + "print('ESCAPED' if libc.ptrace(0, 0, 0, 0) == 0 else '')"),
    "reads another's memory": python("open('/proc/1/mem', 'rb').read(1); print('ESCAPED')"),
    "opens a file by its number": python(
        _SYSCALL + f"n = {304 if _MACHINE == 'x86_64' else 265}\n"
        "libc.syscall(n, 0, 0, 0); print('' if ctypes.get_errno() == 1 else 'ESCAPED')"
    ),
    "looks into the kernel's keys": python(
        _SYSCALL + f"n = {250 if _MACHINE == 'x86_64' else 219}\n"
        "libc.syscall(n, 0, -3, 0); print('' if ctypes.get_errno() == 1 else 'ESCAPED')"
    ),
    "loads a program into the kernel": python(
        _SYSCALL + f"n = {321 if _MACHINE == 'x86_64' else 280}\n"
        "libc.syscall(n, 0, 0, 0); print('' if ctypes.get_errno() == 1 else 'ESCAPED')"
    ),
    "bypasses the filter with io_uring": python(
        _SYSCALL + "libc.syscall(425, 1, 0); print('' if ctypes.get_errno() == 1 else 'ESCAPED')"
    ),
    "types into our terminal": python(
        """
        import fcntl, os, termios
        try:
            fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), termios.TIOCSTI, b'x'); print('ESCAPED')
        except OSError: pass
        a, b = os.openpty()
        fcntl.ioctl(b, termios.TIOCSTI, b'x'); print('ESCAPED')
        """
    ),
    "asks for more than the limit": python(
        """
        import resource
        for which in (resource.RLIMIT_NPROC, resource.RLIMIT_AS, resource.RLIMIT_FSIZE):
            try: resource.setrlimit(which, (resource.RLIM_INFINITY,) * 2); print('ESCAPED')
            except (ValueError, OSError): pass
        """
    ),
    "takes all the memory": python("x = bytearray(700 << 20); print('ESCAPED')"),
    "fills memory by way of /dev/shm": "dd if=/dev/zero of=/dev/shm/x bs=1M count=80 2>/dev/null && echo ESCAPED",
    "undoes that it is killed first": "echo 0 > /proc/self/oom_score_adj; grep -vx 1000 /proc/self/oom_score_adj"
    " && echo ESCAPED",
    "writes to its own /proc": "echo x > /proc/self/comm && echo ESCAPED",
    "keeps memory without a process": python(
        _SYSCALL + f"n = {29 if _MACHINE == 'x86_64' else 194}; r = libc.syscall(n, 0, 1 << 20, 0o1600)\n"
        "print('ESCAPED' if r >= 0 else '')"
    ),
    "changes what everybody shares": "touch /shared/x && echo ESCAPED",
    "talks to the container engine": "ls /var/run/docker.sock /run/docker.sock /run/dbus && echo ESCAPED",
}


@pytest.mark.parametrize("attempt", [*SAFE_ATTEMPTS, *DANGEROUS_ATTEMPTS])
async def test_d16_attempts_fail_in_the_sandbox(host: Host, attempt: str) -> None:
    ran = await host.run({**SAFE_ATTEMPTS, **DANGEROUS_ATTEMPTS}[attempt])
    assert not ran.timed_out
    assert "ESCAPED" not in ran.output


@pytest.mark.parametrize("attempt", SAFE_ATTEMPTS)
async def test_d16_attempts_succeed_without_a_sandbox(host: Host, attempt: str) -> None:
    ran = await host.run(SAFE_ATTEMPTS[attempt], confined=False)
    if attempt in ("reads the user's home", "makes a hard link out") and "ESCAPED" not in ran.output:
        pytest.skip("nothing to find on this machine")
    assert "ESCAPED" in ran.output


async def test_d16_there_are_at_least_thirty_attempts() -> None:
    assert len(SAFE_ATTEMPTS) + len(DANGEROUS_ATTEMPTS) >= 30


async def test_d16_a_fork_bomb_reaches_the_process_limit(host: Host) -> None:
    counts = python(
        """
        import os, time
        made = 0
        while True:
            try: child = os.fork()
            except OSError: break
            if not child: time.sleep(10); os._exit(0)
            made += 1
        print('made', made)
        """
    )
    ran = await host.run(counts)
    made = int(ran.output.split()[-1])
    assert 4 < made < 64


_DAEMONS = "for n in 1 2 3 4 5 6 7 8; do (setsid sh -c 'while :; do date +%s%N > alive; done' &); done; "


@pytest.mark.parametrize("seconds", [0.5, 60])
async def test_d16_no_process_survives_a_command(host: Host, seconds: float) -> None:
    """One command ends and leaves processes behind, one runs into its timeout."""
    ran = await host.run(f"{_DAEMONS} sleep {seconds}", timeout_s=1)
    assert (ran.code, ran.timed_out) == ((0, False) if seconds < 1 else (-signal.SIGKILL, True))
    before = (host.workspace / "alive").stat().st_mtime_ns
    await asyncio.sleep(0.3)
    assert (host.workspace / "alive").stat().st_mtime_ns == before


async def test_d16_endless_output_is_truncated_and_killed(host: Host) -> None:
    ran = await host.run("yes", timeout_s=1)
    assert (ran.timed_out, ran.truncated, len(ran.output)) == (True, True, 50_000)


async def test_d16_output_at_the_limit_is_complete(host: Host) -> None:
    ran = await host.run("head -c 50000 /dev/zero | tr '\\0' x")
    assert (ran.truncated, len(ran.output)) == (False, 50_000)


async def test_d16_files_in_the_workspace_are_kept(host: Host) -> None:
    assert (await host.run("mkdir -p a/b && echo hello > a/b/c && cat a/b/c")).output == "hello\n"
    assert (host.workspace / "a/b/c").read_text() == "hello\n"
    assert (await host.run("echo more >> a/b/c; cat a/b/c; exit 3")) == CommandResult(3, "hello\nmore\n")


async def test_d16_a_set_uid_copy_is_not_owned_by_root(host: Host) -> None:
    await host.run("cp /bin/sh s && chmod 4755 s")
    kept = (host.workspace / "s").stat()
    assert kept.st_uid != 0 or not kept.st_mode & stat.S_ISUID
