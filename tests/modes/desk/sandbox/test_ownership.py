"""D16: a server that runs as root gives files to the sandbox's user, inside the workspace only."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from coterie.modes.desk.sandbox.sandbox import Sandbox
from coterie.modes.desk.settings import DeskSettings
from tests.swapping import swapping

pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap (apt install bubblewrap)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away"),
]


NAMES = [f"{number}/{name}.txt" for number in range(20) for name in range(10)]


def make_tree(folder: Path) -> None:
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in [folder, *folder.rglob("*")]}


async def test_d16_commands_that_start_while_a_folder_is_swapped_give_away_nothing_outside(
    tmp_path: Path,
) -> None:
    sandbox, workspace, outside = Sandbox(DeskSettings()), tmp_path / "workspace", tmp_path / "outside"
    make_tree(workspace / "room")
    make_tree(outside)
    await sandbox.status()
    with swapping(workspace / "room", outside):
        for _ in range(30):
            await sandbox.run(["true"], workspace)
    assert owners(outside) == {0}


async def test_d16_files_of_root_in_the_workspace_are_given_to_the_sandbox(tmp_path: Path) -> None:
    sandbox, workspace = Sandbox(DeskSettings()), tmp_path / "workspace"
    (workspace / "room").mkdir(parents=True)
    (workspace / "room/note.txt").write_text("a")
    (tmp_path / "outside.txt").write_text("b")
    os.link(tmp_path / "outside.txt", workspace / "linked.txt")
    (workspace / "link").symlink_to(tmp_path / "outside.txt")
    ran = await sandbox.run(["/bin/sh", "-c", "echo more >> room/note.txt && cat room/note.txt"], workspace)
    assert ran.output == "amore\n"
    assert (tmp_path / "outside.txt").stat().st_uid == 0
