"""Reads and writes files of a workspace, and nothing outside it.

A path is opened one name at a time, each relative to the folder before and never through a symbolic link. There is no
check that is separate from the use, so changing a name meanwhile gains nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from coterie.base.ids import new_id
from coterie.modes.desk.errors import OutsideWorkspace, WorkspaceFileError

MAX_READ = 50_000
"""Bytes that one read returns."""
MAX_WRITTEN = 10 << 20
_MAX_LISTED = 1_000
_MAX_FOUND = 100
_MAX_SEARCHED = 2 << 20
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Non-blocking: opening a named pipe must not wait for a writer."""


@dataclass(frozen=True)
class FileEntry:
    name: str
    """Relative to the workspace; a folder ends with a slash."""
    size: int


@dataclass(frozen=True)
class FileMatch:
    name: str
    line: int
    text: str


class WorkspaceFiles:
    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, path: str, *, offset: int = 0) -> str:
        """Up to `MAX_READ` bytes from `offset`, with a note if there are more."""
        with self._open_parent(path) as (folder, name), _open_file(folder, name, path) as file:
            size = os.fstat(file).st_size
            start = min(max(offset, 0), size)
            data = os.pread(file, MAX_READ, start)
        rest = size - start - len(data)
        text = data.decode(errors="replace")
        return f"{text}\n[{rest} more bytes: read on from offset {size - rest}]" if rest > 0 else text

    def write(self, path: str, text: str) -> None:
        """Replace the file atomically."""
        data = text.encode()
        if len(data) > MAX_WRITTEN:
            raise WorkspaceFileError(f"{path} would be {len(data)} bytes.", f"Write at most {MAX_WRITTEN}.")
        with self._open_parent(path, make=True) as (folder, name):
            _replace(folder, name, data, path)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace `old`, which must occur exactly once, by `new`."""
        with self._open_parent(path) as (folder, name):
            with _open_file(folder, name, path) as file:
                if os.fstat(file).st_size > MAX_WRITTEN:
                    raise WorkspaceFileError(f"{path} is too large to edit.", "Use a command for it.")
                text = _read_all(file).decode(errors="surrogateescape")
            count = text.count(old) if old else 0
            if count != 1:
                raise WorkspaceFileError(
                    f"The text to replace occurs {count} times in {path}.", "Give a text that occurs exactly once."
                )
            _replace(folder, name, text.replace(old, new).encode(errors="surrogateescape"), path)

    def entries(self, path: str = ".") -> list[FileEntry]:
        with self._open_folder(path) as folder:
            prefix = "/".join(_split_path(path))
            return [_file_entry(entry, prefix) for entry in _entries(folder)][:_MAX_LISTED]

    def search(self, text: str, path: str = ".") -> list[FileMatch]:
        """Lines that contain `text`, ignoring case, in the files below a folder."""
        if not text:
            raise WorkspaceFileError("There is nothing to search for.", "Give a text.")
        matches: list[FileMatch] = []
        with self._open_folder(path) as folder:
            for name, number, line in _find_lines(folder, "/".join(_split_path(path)), text.casefold()):
                matches.append(FileMatch(name, number, line[:300]))
                if len(matches) == _MAX_FOUND:
                    break
        return matches

    @contextmanager
    def _open_folder(self, path: str) -> Iterator[int]:
        folder = self._open_root()
        try:
            for name in _split_path(path):
                folder = _open_subfolder(folder, name, path)
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _open_parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The open folder of a path's last name, and that name."""
        *folders, name = _split_path(path) or [""]
        if not name:
            raise WorkspaceFileError(
                f"{path!r} is not the name of a file.", "Give the name of a file in the workspace."
            )
        parent = self._open_root()
        try:
            for folder in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, 0o755, dir_fd=parent)
                        _chown_to_folder_owner(folder, parent)
                parent = _open_subfolder(parent, folder, path)
            yield parent, name
        finally:
            os.close(parent)

    def _open_root(self) -> int:
        try:
            return os.open(self._root, _FOLDER_FLAGS)
        except OSError as error:
            raise WorkspaceFileError(
                f"The workspace cannot be opened ({error.strerror}).", "Check that its folder exists."
            ) from None


def _split_path(path: str) -> list[str]:
    """The names of a relative path; absolute paths and `..` are refused before anything is opened."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise OutsideWorkspace(f"{path!r} leads out of the workspace.", "Name files relative to it, without `..`.")
    return [part for part in pure.parts if part != "."]


def _open_subfolder(folder: int, name: str, path: str) -> int:
    """Open the folder `name` and close the current one."""
    try:
        inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    except OSError as error:
        raise _file_error(error, path) from None
    os.close(folder)
    return inner


@contextmanager
def _open_file(folder: int, name: str, path: str) -> Iterator[int]:
    try:
        file = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        raise _file_error(error, path) from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise WorkspaceFileError(f"{path} is not a plain file.", "Name a file; list a folder instead.")
        yield file
    finally:
        os.close(file)


def _replace(folder: int, name: str, data: bytes, path: str) -> None:
    try:
        existing = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(existing.st_mode):
            raise (
                _link_error(path)
                if stat.S_ISLNK(existing.st_mode)
                else WorkspaceFileError(f"{path} is not a plain file.", "Choose another name.")
            )
        mode = stat.S_IMODE(existing.st_mode) & 0o777
    except FileNotFoundError:
        mode = 0o644
    temporary = f".{new_id()}.new"
    try:
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder
        )
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(data)
            _chown_to_folder_owner(temporary, folder)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
    except OSError as error:
        raise _file_error(error, path) from None


def _chown_to_folder_owner(name: str, folder: int) -> None:
    """Give a file that root made to the owner of its folder, so that confined commands can change it."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


def _entries(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _file_entry(entry: os.DirEntry[str], prefix: str) -> FileEntry:
    name = f"{prefix}/{entry.name}" if prefix else entry.name
    folder = entry.is_dir(follow_symlinks=False)
    return FileEntry(f"{name}/" if folder else name, 0 if folder else entry.stat(follow_symlinks=False).st_size)


def _find_lines(folder: int, prefix: str, needle: str) -> Iterator[tuple[str, int, str]]:
    for entry in _entries(folder):
        name = f"{prefix}/{entry.name}" if prefix else entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                inner = os.open(entry.name, _FOLDER_FLAGS, dir_fd=folder)
                try:
                    yield from _find_lines(inner, name, needle)
                finally:
                    os.close(inner)
            elif entry.is_file(follow_symlinks=False):
                with _open_file(folder, entry.name, name) as file:
                    text = os.pread(file, _MAX_SEARCHED, 0).decode(errors="replace")
                for number, line in enumerate(text.splitlines(), start=1):
                    if needle in line.casefold():
                        yield name, number, line
        except (OSError, WorkspaceFileError):
            continue  # deleted or replaced meanwhile


def _read_all(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as opened:
        return opened.read()


def _file_error(error: OSError, path: str) -> WorkspaceFileError | OutsideWorkspace:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return _link_error(path)
    if error.errno == errno.ENOTDIR:
        return WorkspaceFileError(
            f"{path} leads through something that is not a folder, or a symbolic link.", "Name files by their own path."
        )
    return WorkspaceFileError(f"{path}: {error.strerror}.", "List the folder to see its files.")


def _link_error(path: str) -> OutsideWorkspace:
    return OutsideWorkspace(f"{path!r} is a symbolic link, which is not followed.", "Name the file itself.")
