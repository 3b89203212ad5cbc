"""Paths below a folder that somebody else changes at the same time: links, swaps, hostile names and deep trees."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.errors import UnsafePath
from coterie.base.folders import MAX_DEPTH, Folder, split_path
from tests.swapping import swapping

NOBODY = 65_534
HOSTILE = ["..", "../x", "/etc/passwd", "a/../../x", "\0", "a\0b", "//x", "./..", "a/./../..", "\ud800", "", ".", "/"]
PARTS = ["a", "b", "link", "out", "..", ".", "", "\0", "a" * 300, "ä", "\ud800", " ", "~", "-", "\n", "CON", "\\"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("the secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(root: Path) -> Iterator[Folder]:
    with Folder.open(root) as opened:
        yield opened


def snapshot(outside: Path) -> dict[str, tuple[int, int, str]]:
    return {
        str(path): (path.lstat().st_uid, path.lstat().st_mode, path.read_text() if path.is_file() else "")
        for path in [outside, *outside.rglob("*")]
    }


def every_operation(folder: Folder, path: str) -> list[Callable[[], object]]:
    """Everything that a folder can do with a path."""
    return [
        lambda: folder.subfolder(path).close(),
        lambda: folder.subfolder(path, create=True).close(),
        lambda: folder.open_file(path).close(),
        lambda: folder.read(path),
        lambda: folder.create_file(path).close(),
        lambda: folder.write(path, b"changed"),
        lambda: folder.write(path, b"changed", create_folders=True, durable=True),
        lambda: folder.status(path),
        lambda: folder.remove(path),
    ]


def make_chain(folder: Folder, depth: int, name: str = "d" * 50) -> None:
    """Folders inside each other, with a file in the last one."""
    current = os.dup(folder.descriptor)
    for _ in range(depth):
        os.mkdir(name, dir_fd=current)
        inner = os.open(name, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    file = os.open("last.txt", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=current)
    os.write(file, b"x" * 10_000)
    os.close(file)
    os.close(current)


@contextmanager
def as_nobody(folder: Path) -> Iterator[Path]:
    """Without the rights of root, in a folder of one's own."""
    if os.geteuid() != 0:
        yield folder
        return
    os.chown(folder, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("path", HOSTILE)
def test_d17_paths_that_lead_out_are_refused_by_every_operation(folder: Folder, root: Path, path: str) -> None:
    before = snapshot(root.parent / "outside")
    for operation in every_operation(folder, path):
        with suppress(UnsafePath, FileExistsError):  # `.` is the folder itself
            operation()
    assert snapshot(root.parent / "outside") == before
    assert sorted(os.listdir(root.parent)) == ["folder", "outside"]
    if path not in ("", "."):
        with pytest.raises(UnsafePath):
            split_path(path)


@pytest.mark.parametrize("path", ["link", "link/secret.txt", "link/new.txt", "dangling", "inner/link/secret.txt"])
def test_d17_no_operation_follows_a_link(folder: Folder, root: Path, path: str) -> None:
    outside = root.parent / "outside"
    before = snapshot(outside)
    (root / "inner").mkdir()
    for operation in range(len(every_operation(folder, path))):
        for link, target in (("link", outside), ("inner/link", outside), ("dangling", outside / "made.txt")):
            (root / link).unlink(missing_ok=True)
            (root / link).symlink_to(target)
        with suppress(UnsafePath, OSError):
            every_operation(folder, path)[operation]()
    assert snapshot(outside) == before


@given(st.lists(st.sampled_from(PARTS), max_size=5), st.lists(st.sampled_from(["a", "b", "a/b", "b/a"]), max_size=4))
def test_d17_generated_paths_among_links_stay_inside(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], links: list[str]
) -> None:
    root = tmp_path_factory.mktemp("case")
    outside, inside = root / "outside", root / "inside"
    for made in (outside / "a", inside / "a"):
        made.mkdir(parents=True)
    (outside / "a/b").write_text("the secret")
    for link in links:
        with suppress(OSError):
            (inside / link).symlink_to(outside)
    before = snapshot(outside)
    with Folder.open(inside) as folder:
        for operation in every_operation(folder, "/".join(parts)):
            with suppress(UnsafePath, OSError):
                operation()
        folder.usage()
    assert snapshot(outside) == before
    assert sorted(os.listdir(root)) == ["inside", "outside"]


@pytest.mark.parametrize("operation", range(9))
def test_d17_swapping_a_folder_meanwhile_changes_nothing_outside(folder: Folder, root: Path, operation: int) -> None:
    outside = root.parent / "outside"
    before = snapshot(outside)
    results: set[str] = set()
    with swapping(root / "room", outside):
        for number in range(100_000):
            if number > 600 and "refused" in results and len(results) > 1:
                break  # both states were met
            try:
                every_operation(folder, f"room/{number}.txt")[operation]()
                results.add("done")
            except UnsafePath:
                results.add("refused")
            except OSError as error:
                assert error.errno in (errno.ENOENT, errno.EISDIR, errno.EEXIST, errno.ENOTDIR)
                results.add("refused" if error.errno == errno.ENOTDIR else "missing")
    assert snapshot(outside) == before
    assert "refused" in results and len(results) > 1


def test_d17_swapping_meanwhile_hides_nothing_outside_from_walks(folder: Folder, root: Path) -> None:
    outside = root.parent / "outside"
    before = snapshot(outside)
    empty = folder.usage()
    with swapping(root / "room", outside):
        for _ in range(300):
            assert all("secret" not in entry.name for entry in folder.walk())
            if os.geteuid() == 0:
                folder.give_to(NOBODY)
        folder.cut_back(empty)
        # Between two steps, the folder can become the link and the other way round.
        with suppress(FileNotFoundError, IsADirectoryError, NotADirectoryError, UnsafePath):
            folder.remove("room")
    assert snapshot(outside) == before


def test_d17_trees_past_the_longest_path_are_measured_flattened_and_removed(folder: Folder, root: Path) -> None:
    make_chain(folder, 1_000)
    assert folder.usage().too_deep
    with Folder.open(root) as again:
        again.give_to(NOBODY) if os.geteuid() == 0 else None
    assert folder.flatten() >= 9
    usage = folder.usage()
    assert not usage.too_deep and usage.files == 1_001 and usage.bytes >= 10_000
    assert max(entry.depth for entry in folder.walk()) <= MAX_DEPTH
    for name in os.listdir(root):
        folder.remove(name)
    assert os.listdir(root) == []


def test_d17_a_tree_of_any_depth_and_shape_is_removed(folder: Folder, root: Path) -> None:
    outside = root.parent / "outside"
    before = snapshot(outside)
    (root / "top").mkdir()
    with folder.subfolder("top") as top:
        make_chain(top, 3_000, "a")
        make_chain(top, 200, "b")
    (root / "top/link").symlink_to(outside)
    os.mkfifo(root / "top/pipe")
    folder.remove("top")
    assert os.listdir(root) == []
    assert snapshot(outside) == before


def test_d16_cutting_back_removes_what_is_new_and_keeps_what_was_there(folder: Folder, root: Path) -> None:
    (root / "kept").mkdir()
    (root / "kept/a.txt").write_text("a" * 5)
    (root / "kept/b.txt").write_text("b" * 5)
    earlier = folder.usage()
    (root / "kept/a.txt").write_text("a" * 500_000)
    (root / "kept/b.txt").rename(root / "moved.txt")
    (root / "kept/new.txt").write_text("new")
    (root / "new/inner").mkdir(parents=True)
    (root / "new/inner/file").write_text("new")
    with folder.subfolder("new") as new:
        make_chain(new, 300)
    folder.cut_back(earlier)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == ["kept", "kept/a.txt", "moved.txt"]
    assert (root / "kept/a.txt").read_text() == "a" * 5 and (root / "moved.txt").read_text() == "b" * 5


def test_d16_folders_without_permissions_hide_nothing_and_are_removed() -> None:
    # Not in `tmp_path`, which only its owner may enter.
    with tempfile.TemporaryDirectory() as made, as_nobody(Path(made)) as root, Folder.open(root) as folder:
        empty = folder.usage()
        (root / "locked/inner").mkdir(parents=True)
        (root / "locked/inner/big.bin").write_bytes(b"x" * 1_000_000)
        for mode in (0o000, 0o400, 0o300):
            (root / "locked/inner").chmod(mode)
            (root / "locked").chmod(mode)
            assert folder.usage().bytes >= 1_000_000
        (root / "locked/inner").chmod(0o500)
        folder.cut_back(empty)
        assert os.listdir(root) == []


def test_d16_hard_links_count_once_and_counting_stops_at_the_limit(folder: Folder, root: Path) -> None:
    (root / "a").write_bytes(b"x" * 1_000_000)
    for number in range(50):
        os.link(root / "a", root / f"link-{number}")
    usage = folder.usage()
    assert usage.files == 51 and usage.bytes < 1_100_000
    assert folder.usage(max_files=10).files == 11
    assert folder.usage(max_bytes=1).bytes > 1


def test_d17_only_plain_files_are_read_and_replaced(folder: Folder, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for path in ("pipe", "folder"):
        with pytest.raises(OSError):
            folder.read(path)
        with pytest.raises(OSError):
            folder.write(path, b"x")


def test_a_written_file_keeps_its_permissions_and_leaves_nothing_beside_it(folder: Folder, root: Path) -> None:
    folder.write("a/b/c.txt", b"1", create_folders=True, folder_mode=0o700)
    (root / "a/b/c.txt").chmod(0o640)
    folder.write("a/b/c.txt", b"2", durable=True)
    assert stat.S_IMODE((root / "a/b/c.txt").stat().st_mode) == 0o640
    assert stat.S_IMODE((root / "a/b").stat().st_mode) == 0o700
    assert os.listdir(root / "a/b") == ["c.txt"] and folder.read("a/b/c.txt") == b"2"
    assert folder.read("a/b/c.txt", 0) == b""
    with pytest.raises(FileNotFoundError):
        folder.write("x/y.txt", b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_d17_what_root_creates_belongs_to_the_owner_of_the_folder(folder: Folder, root: Path) -> None:
    os.chown(root, NOBODY, NOBODY)
    folder.write("a/b.txt", b"", create_folders=True)
    folder.create_file("c.txt").close()
    assert {(root / name).stat().st_uid for name in ("a", "a/b.txt", "c.txt")} == {NOBODY}


def test_no_descriptor_stays_open(folder: Folder, root: Path) -> None:
    (root / "link").symlink_to(root)
    make_chain(folder, 150)
    before = len(os.listdir("/proc/self/fd"))
    for path in ("a/b", "link/x", "missing/x", "..", "a" * 300):
        for operation in every_operation(folder, path):
            with suppress(UnsafePath, OSError):
                operation()
    next(folder.walk())
    folder.usage(max_files=20)
    folder.flatten()
    assert len(os.listdir("/proc/self/fd")) == before
