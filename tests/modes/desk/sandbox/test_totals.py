"""D16: totals of the sandbox. Each test does what once went through, in a smaller size."""

from __future__ import annotations

import asyncio
import os
import shutil
import textwrap
from pathlib import Path

import pytest

from coterie.app import build_doctor
from coterie.base.folders import Folder, Usage
from coterie.base.paths import Paths
from coterie.modes.desk.errors import WorkspaceFull
from coterie.modes.desk.sandbox.files import FileMatch, Workspace, WorkspaceFiles, WorkspaceLimits
from coterie.modes.desk.sandbox.limits import Cgroup, NoCgroup, delegated_cgroup
from coterie.modes.desk.sandbox.sandbox import CommandResult, Sandbox
from coterie.modes.desk.settings import DeskSettings

needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)")
MB = 1 << 20


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir(mode=0o700)
    return folder


def small(**changes: int) -> Sandbox:
    settings = {"workspace_mb": 40, "workspace_files": 500, "command_memory_mb": 400, "commands_memory_mb": 600}
    return Sandbox(DeskSettings(**{**settings, **changes}))


def used(workspace: Path) -> Usage:
    with Folder.open(workspace) as folder:
        return folder.usage()


async def run_python(sandbox: Sandbox, workspace: Path, code: str, timeout_s: float = 30) -> CommandResult:
    script = f"exec /usr/bin/env python3 - <<'END'\n{textwrap.dedent(code)}\nEND"
    return await sandbox.run(["/bin/sh", "-c", script], workspace, timeout_s=timeout_s)


WRITE_FOREVER = {
    "many large files": """
        n = 0
        while True:
            with open(f"big-{n}", "wb") as file: file.write(bytes(5 << 20))
            n += 1
    """,
    "many small files": """
        import os
        n = 0
        while True:
            os.makedirs(f"d{n % 50}", exist_ok=True)
            open(f"d{n % 50}/{n}", "w").close()
            n += 1
    """,
    "files that were there before": """
        while True:
            for n in range(5):
                with open(f"old-{n}", "ab") as file: file.write(bytes(1 << 20))
    """,
    "folders without permissions": """
        import os
        os.mkdir("locked"); folder = os.open("locked", os.O_RDONLY); os.chmod("locked", 0)
        n = 0
        while True:
            os.chmod("locked", 0o700)
            file = os.open(f"{n}", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
            os.write(file, bytes(5 << 20)); os.close(file)
            os.chmod("locked", 0)
            n += 1
    """,
    "deleted files": """
        import os, time
        held = []
        while True:
            file = open("gone", "wb"); os.unlink("gone"); file.write(bytes(5 << 20)); file.flush(); held.append(file)
            time.sleep(0.02)
    """,
    "deep folders": """
        import os
        while True:
            os.mkdir("d"); os.chdir("d"); open("f", "w").close()
    """,
}


@needs_bwrap
@pytest.mark.parametrize("how", WRITE_FOREVER)
async def test_d16_a_command_that_fills_the_disk_is_stopped_and_leaves_no_more_than_its_share(
    workspace: Path, how: str
) -> None:
    for number in range(5):
        (workspace / f"old-{number}").write_bytes(b"mine")
    sandbox = small()
    ran = await run_python(sandbox, workspace, WRITE_FOREVER[how])
    assert ran.stopped and not ran.timed_out
    usage = used(workspace)
    assert usage.bytes <= 40 * MB and usage.files <= 500 and not usage.too_deep
    assert all((workspace / f"old-{number}").read_bytes()[:4] == b"mine" for number in range(5))
    again = await sandbox.run(["/bin/sh", "-c", "echo fine > note && cat note"], workspace)
    assert again == CommandResult(0, "fine\n")


@needs_bwrap
async def test_d16_repeated_attempts_do_not_add_up(workspace: Path) -> None:
    sandbox = small()
    for _ in range(4):
        await run_python(sandbox, workspace, WRITE_FOREVER["many large files"])
    assert used(workspace).bytes <= 40 * MB


@needs_bwrap
async def test_d16_a_workspace_that_is_too_full_can_be_emptied_but_not_filled(workspace: Path) -> None:
    for number in range(12):
        (workspace / f"old-{number}").write_bytes(bytes(5 * MB))
    sandbox = small()
    ran = await run_python(sandbox, workspace, WRITE_FOREVER["many large files"])
    assert ran.stopped and sorted(path.name for path in workspace.iterdir()) == sorted(f"old-{n}" for n in range(12))
    assert (await sandbox.run(["/bin/sh", "-c", "rm old-*"], workspace)) == CommandResult(0, "")
    assert used(workspace).files == 0


def test_d16_the_file_tool_holds_the_same_totals(workspace: Path) -> None:
    files = WorkspaceFiles(Workspace(workspace), WorkspaceLimits(2 * MB, 20))
    for number in range(20):
        files.write(f"{number}", "x")
    with pytest.raises(WorkspaceFull):
        files.write("one-more", "x")
    for number in range(19):
        (workspace / f"{number}").unlink()
    files.write("large", "x" * MB)
    with pytest.raises(WorkspaceFull):
        files.write("larger", "x" * MB)
    with pytest.raises(WorkspaceFull):
        files.edit("19", "x", "y" * MB)
    assert files.read("19") == "x"


HOLD_MEMORY = {
    "one after the other": "x = []\nwhile True: x.append(b'x' * (20 << 20)); time.sleep(0.03)",
    "in many processes": """
        for _ in range(8):
            if os.fork() == 0: x = b'x' * (150 << 20); time.sleep(30)
        time.sleep(30)
    """,
    "in files of memory": """
        for n in range(8):
            file = os.memfd_create(f"m{n}"); os.write(file, b'x' * (90 << 20))
        time.sleep(30)
    """,
    "in shared memory that no process counts": """
        for n in range(4):
            if os.fork() == 0:
                m = mmap.mmap(-1, 200 << 20)
                for _ in range(200): m.write(b'x' * (1 << 20)); m.madvise(mmap.MADV_DONTNEED)
                time.sleep(30)
        time.sleep(30)
    """,
}


@needs_bwrap
@pytest.mark.parametrize("how", HOLD_MEMORY)
async def test_d16_a_command_that_holds_too_much_memory_is_stopped(workspace: Path, how: str) -> None:
    code = "import mmap, os, time\n" + textwrap.dedent(HOLD_MEMORY[how])
    ran = await run_python(small(), workspace, code)
    assert "memory" in ran.stopped or (how == "one after the other" and "MemoryError" in ran.output)
    assert not ran.timed_out


@needs_bwrap
async def test_d16_eight_commands_do_not_hold_more_together_than_all_may(workspace: Path) -> None:
    """Each holds less than a command may; all of them together would hold four times the total."""
    sandbox = small(commands_at_once=8, commands_memory_mb=600)
    workspaces = [workspace.with_name(f"workspace-{number}") for number in range(8)]
    for folder in workspaces:
        folder.mkdir(mode=0o700)
    code = "import time\nx = b'x' * (300 << 20)\ntime.sleep(8)\nprint('held')"
    ran = await asyncio.gather(*(run_python(sandbox, folder, code) for folder in workspaces))
    assert sum("held" in one.output for one in ran) <= 2
    assert sum("together" in one.stopped for one in ran) >= 6


@needs_bwrap
async def test_d16_commands_wait_for_their_turn(workspace: Path) -> None:
    sandbox = small(commands_at_once=2)
    # Counted by the shell itself: `ls` complains, in the output, about a name that another command has just removed.
    script = "name=running-$1; touch $name; sleep 0.3; set -- running-*; echo $#; rm $name"
    ran = await asyncio.gather(
        *(sandbox.run(["/bin/sh", "-c", script, "sh", str(number)], workspace) for number in range(6))
    )
    assert max(int(one.output) for one in ran) <= 2


@needs_bwrap
async def test_d16_a_command_cannot_undo_that_it_is_killed_first(workspace: Path) -> None:
    ran = await small().run(
        ["/bin/sh", "-c", "for n in self $$ 1; do echo 0 > /proc/$n/oom_score_adj; cat /proc/$n/oom_score_adj; done"],
        workspace,
    )
    assert [line for line in ran.output.splitlines() if line.lstrip("-").isdigit()] == ["1000"] * 3


@needs_bwrap
async def test_d16_a_tree_past_the_longest_path_breaks_nothing(workspace: Path) -> None:
    """One that is there already: its folders are moved to the top, and nothing is lost."""
    names = os.open(workspace, os.O_RDONLY)
    for _ in range(1_000):
        os.mkdir("d" * 20, dir_fd=names)
        inner = os.open("d" * 20, os.O_RDONLY, dir_fd=names)
        os.close(names)
        names = inner
    file = os.open("needle.txt", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=names)
    os.write(file, b"found it")
    os.close(file)
    os.close(names)
    files = WorkspaceFiles(Workspace(workspace))
    assert files.search("found") == [] and files.entries()[0].name == "d" * 20 + "/"
    sandbox = small(workspace_files=2_000)
    for _ in range(2):
        assert (await sandbox.run(["/bin/sh", "-c", "echo fine"], workspace)) == CommandResult(0, "fine\n")
    (match,) = files.search("found")
    assert match == FileMatch(match.name, 1, "found it") and match.name.startswith("moved-")
    assert (await sandbox.run(["/bin/sh", "-c", "rm -r *"], workspace)).code == 0


@needs_bwrap
def test_d16_the_doctor_says_who_limits_the_totals(tmp_path: Path) -> None:
    paths = Paths.locate({"COTERIE_HOME": str(tmp_path / "home")})
    (finding,) = [result for result in build_doctor(paths).run() if result.about == "Sandbox"]
    assert finding.state == "ok" and "memory" in finding.what and "cgroup" in finding.what


@needs_bwrap
async def test_d16_the_status_says_who_limits_the_totals(workspace: Path) -> None:
    status = await small().status()
    try:
        delegated_cgroup()
        assert "cgroup" in status.limits and "several times a second" not in status.limits
    except NoCgroup as missing:
        assert str(missing) in status.limits and "several times a second" in status.limits


@pytest.fixture
def hierarchy(tmp_path: Path) -> Path:
    """A folder with the files of a delegated cgroup; only a kernel with one would act on them."""
    proc, group = tmp_path / "proc/self", tmp_path / "cgroup/user.slice/coterie.service"
    proc.mkdir(parents=True)
    mount = f"30 24 0:26 / {tmp_path}/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
    (proc / "mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n{mount}")
    (proc / "cgroup").write_text("0::/user.slice/coterie.service\n")
    make_group(group, procs="101\n102\n")
    for name in ("coterie-server", "coterie-commands"):
        make_group(group / name)
    return group


def make_group(group: Path, procs: str = "") -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name in ("cgroup.type", "cgroup.subtree_control", "memory.max", "pids.max", "memory.swap.max"):
        (group / name).write_text("")
    (group / "cgroup.controllers").write_text("cpu memory pids\n")
    (group / "cgroup.procs").write_text(procs)


def test_d16_the_server_divides_a_delegated_cgroup(
    tmp_path: Path, hierarchy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getxattr", lambda path, name: b"1")
    settings = DeskSettings(commands_memory_mb=600, command_processes=10, commands_at_once=3)
    Cgroup.prepare(settings, tmp_path / "proc")
    assert (hierarchy / "coterie-server/cgroup.procs").read_text() == "102", "the last process that was moved"
    assert (hierarchy / "cgroup.subtree_control").read_text() == "+memory +pids"
    commands = hierarchy / "coterie-commands"
    assert (commands / "memory.max").read_text() == str(600 * MB)
    assert (commands / "pids.max").read_text() == "30" and (commands / "memory.swap.max").read_text() == "0"


def test_d16_a_cgroup_of_somebody_else_is_left_alone(
    tmp_path: Path, hierarchy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_delegated(path: Path, name: str) -> bytes:
        raise OSError

    monkeypatch.setattr("os.getxattr", not_delegated)
    with pytest.raises(NoCgroup, match=r"not delegated.*Delegate="):
        Cgroup.prepare(DeskSettings(), tmp_path / "proc")
    (hierarchy / "cgroup.controllers").write_text("cpu\n")
    with pytest.raises(NoCgroup, match="controllers"):
        Cgroup.prepare(DeskSettings(), tmp_path / "proc")
    (tmp_path / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    with pytest.raises(NoCgroup, match="no cgroup"):
        Cgroup.prepare(DeskSettings(), tmp_path / "proc")
    assert (hierarchy / "cgroup.subtree_control").read_text() == ""
