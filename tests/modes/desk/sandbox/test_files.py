"""D17: file operations stay inside the workspace."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.modes.desk.errors import DeskError, OutsideWorkspace, WorkspaceFileError
from coterie.modes.desk.sandbox.files import MAX_READ, FileEntry, FileMatch, Workspace, WorkspaceFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text("the secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret.txt").write_text("the secret")
    folder = tmp_path / "workspace"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes/a.txt").write_text("first line\nsecond Line\n")
    return folder


@pytest.fixture
def files(root: Path) -> WorkspaceFiles:
    return WorkspaceFiles(Workspace(root))


def test_d17_reads_writes_edits_lists_and_searches(files: WorkspaceFiles, root: Path) -> None:
    files.write("notes/new/b.txt", "hello")
    assert files.read("./notes/new/b.txt") == "hello"
    files.edit("notes/a.txt", "first", "1st")
    assert files.read("notes/a.txt") == "1st line\nsecond Line\n"
    assert files.entries() == [FileEntry("notes/", 0)]
    assert files.entries("notes") == [FileEntry("notes/a.txt", 21), FileEntry("notes/new/", 0)]
    assert files.search("line") == [FileMatch("notes/a.txt", 1, "1st line"), FileMatch("notes/a.txt", 2, "second Line")]
    assert sorted(os.listdir(root / "notes")) == ["a.txt", "new"]


OUT = ["/etc/passwd", "../secret.txt", "notes/../../secret.txt", "notes/./../..", "a\0b", "//etc/passwd", "..", "/"]


@pytest.mark.parametrize("path", OUT)
def test_d17_absolute_paths_and_dots_are_refused(files: WorkspaceFiles, path: str) -> None:
    for attempt in (
        lambda: files.read(path),
        lambda: files.write(path, "x"),
        lambda: files.edit(path, "the", "a"),
        lambda: files.entries(path),
        lambda: files.search("secret", path),
    ):
        with pytest.raises(OutsideWorkspace):
            attempt()


def test_d17_symbolic_links_are_not_followed(files: WorkspaceFiles, root: Path) -> None:
    (root / "file").symlink_to(root.parent / "secret.txt")
    (root / "folder").symlink_to(root.parent / "outside")
    (root / "dangling").symlink_to(root.parent / "made.txt")
    for path in ("file", "folder/secret.txt", "dangling"):
        with pytest.raises(DeskError):
            files.read(path)
        with pytest.raises(DeskError):
            files.write(path, "changed")
        with pytest.raises(DeskError):
            files.edit(path, "the", "a")
    with pytest.raises(DeskError):
        files.entries("folder")
    with pytest.raises(DeskError):
        files.write("folder/made/new.txt", "x")
    assert files.search("secret") == []
    assert (root.parent / "secret.txt").read_text() == "the secret"
    assert sorted(os.listdir(root.parent)) == ["outside", "secret.txt", "workspace"]
    assert os.listdir(root.parent / "outside") == ["secret.txt"]


def test_d17_a_workspace_that_is_itself_a_link_is_refused(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root.parent / "outside")
    with pytest.raises(WorkspaceFileError):
        WorkspaceFiles(Workspace(link)).read("secret.txt")


def test_d17_swapping_a_folder_for_a_link_meanwhile_has_no_effect(files: WorkspaceFiles, root: Path) -> None:
    """A folder is replaced by a link to the outside and back in a tight loop."""
    real, link = root / "real", root / "swap"
    real.mkdir()
    (real / "secret.txt").write_text("inside")
    stop = threading.Event()

    def swap() -> None:
        os.symlink(root.parent / "outside", root / "link-out")
        os.rename(real, link)
        while not stop.is_set():
            os.rename(link, root / "moved")
            os.rename(root / "link-out", link)
            os.rename(link, root / "link-out")
            os.rename(root / "moved", link)

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(1_500):
            try:
                seen.add(files.read("swap/secret.txt"))
                files.edit("swap/secret.txt", "inside", "inside")
            except DeskError:
                continue
    finally:
        stop.set()
        thread.join()
    assert seen <= {"inside"}
    assert (root.parent / "outside/secret.txt").read_text() == "the secret"
    assert os.listdir(root.parent / "outside") == ["secret.txt"]


def test_d17_named_pipes_do_not_block(files: WorkspaceFiles, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(WorkspaceFileError, match="plain file"):
        files.read("pipe")
    with pytest.raises(WorkspaceFileError, match="plain file"):
        files.write("pipe", "x")
    assert files.search("x") == []


def test_d17_an_ambiguous_edit_changes_nothing(files: WorkspaceFiles) -> None:
    for old in ("", "not there", "i"):
        with pytest.raises(WorkspaceFileError, match="times"):
            files.edit("notes/a.txt", old, "x")
    assert files.read("notes/a.txt") == "first line\nsecond Line\n"


def test_d17_a_long_file_is_read_in_pieces(files: WorkspaceFiles) -> None:
    files.write("long", "x" * (MAX_READ + 7))
    first = files.read("long")
    assert first.endswith(f"[7 more bytes: read on from offset {MAX_READ}]")
    assert files.read("long", offset=MAX_READ) == "x" * 7


@given(st.text(alphabet="./a\0 ~$\\", max_size=12))
def test_d17_generated_paths_stay_inside(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    parent = tmp_path_factory.mktemp("parent")
    (parent / "workspace").mkdir()
    files = WorkspaceFiles(Workspace(parent / "workspace"))
    with suppress(DeskError):
        files.write(path, "x")
    assert os.listdir(parent) == ["workspace"]
