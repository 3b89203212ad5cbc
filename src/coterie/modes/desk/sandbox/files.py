"""Files of a workspace, and of nothing else. D17

A path is walked one name at a time from the workspace's own folder, each opened relative to the last and never
through a symbolic link. So it does not matter what a name pointed to a moment ago: there is no second look to race.
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

MOST_READ = 50_000
"""Bytes of a file that are read at once."""
MOST_WRITTEN = 10 << 20
_MOST_LISTED = 1_000
_MOST_FOUND = 100
_MOST_SEARCHED = 2 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Without waiting: a pipe that nobody writes to must not hold us up before we see that it is one."""


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
        """Up to 50,000 bytes from `offset`, with a note where there is more."""
        with self._parent(path) as (folder, name), _file(folder, name, path) as file:
            size = os.fstat(file).st_size
            data = os.pread(file, MOST_READ, max(offset, 0))
        rest = size - max(offset, 0) - len(data)
        text = data.decode(errors="replace")
        return f"{text}\n[{rest} more bytes: read on from offset {size - rest}]" if rest > 0 else text

    def write(self, path: str, text: str) -> None:
        """The whole file, at once: whoever looks sees the old one or the new one."""
        data = text.encode()
        if len(data) > MOST_WRITTEN:
            raise WorkspaceFileError(f"{path} would be {len(data)} bytes.", f"Write at most {MOST_WRITTEN}.")
        with self._parent(path, make=True) as (folder, name):
            _replace(folder, name, data, path)

    def edit(self, path: str, old: str, new: str) -> None:
        """Put `new` in the place of `old`, which must stand there exactly once."""
        with self._parent(path) as (folder, name):
            with _file(folder, name, path) as file:
                if os.fstat(file).st_size > MOST_WRITTEN:
                    raise WorkspaceFileError(f"{path} is too large to edit.", "Use a command for it.")
                text = _all(file).decode(errors="surrogateescape")
            count = text.count(old) if old else 0
            if count != 1:
                raise WorkspaceFileError(
                    f"The text to replace stands in {path} {count} times.", "Give a stretch that stands there once."
                )
            _replace(folder, name, text.replace(old, new).encode(errors="surrogateescape"), path)

    def entries(self, path: str = ".") -> list[FileEntry]:
        with self._folder(path) as folder:
            prefix = "/".join(_parts(path))
            return [_listed(entry, prefix) for entry in _entries(folder)][:_MOST_LISTED]

    def search(self, text: str, path: str = ".") -> list[FileMatch]:
        """Lines that contain `text`, whatever the case, in the files below a folder."""
        if not text:
            raise WorkspaceFileError("There is nothing to search for.", "Give a text.")
        found: list[FileMatch] = []
        with self._folder(path) as folder:
            for name, line, told in _matches(folder, "/".join(_parts(path)), text.casefold()):
                found.append(FileMatch(name, line, told[:300]))
                if len(found) == _MOST_FOUND:
                    break
        return found

    @contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        here = self._open_root()
        try:
            for name in _parts(path):
                here = _step(here, name, path)
            yield here
        finally:
            os.close(here)

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The folder a path's last name stands in, held open, and that name."""
        *folders, name = _parts(path) or [""]
        if not name:
            raise WorkspaceFileError(f"{path!r} names no file.", "Give the name of a file in the workspace.")
        here = self._open_root()
        try:
            for folder in folders:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, 0o755, dir_fd=here)
                        _hand_over(folder, here)
                here = _step(here, folder, path)
            yield here, name
        finally:
            os.close(here)

    def _open_root(self) -> int:
        try:
            return os.open(self._root, _FOLDER)
        except OSError as error:
            raise WorkspaceFileError(
                f"The workspace cannot be opened ({error.strerror}).", "See whether its folder is there."
            ) from None


def _parts(path: str) -> list[str]:
    """The names of a relative path. What leads up or starts at the root is refused before anything is opened."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise OutsideWorkspace(f"{path!r} leads out of the workspace.", "Name files relative to it, without `..`.")
    return [part for part in pure.parts if part != "."]


def _step(here: int, name: str, path: str) -> int:
    """Into the folder `name`, leaving the one we were in."""
    try:
        inner = os.open(name, _FOLDER, dir_fd=here)
    except OSError as error:
        raise _trouble(error, path) from None
    os.close(here)
    return inner


@contextmanager
def _file(folder: int, name: str, path: str) -> Iterator[int]:
    try:
        file = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        raise _trouble(error, path) from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise WorkspaceFileError(f"{path} is not a plain file.", "Name a file; list a folder instead.")
        yield file
    finally:
        os.close(file)


def _replace(folder: int, name: str, data: bytes, path: str) -> None:
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(there.st_mode):
            raise (
                _not_through(path)
                if stat.S_ISLNK(there.st_mode)
                else WorkspaceFileError(f"{path} is not a plain file.", "Choose another name.")
            )
        mode = stat.S_IMODE(there.st_mode) & 0o777
    except FileNotFoundError:
        mode = 0o644
    half = f".{new_id()}.new"
    try:
        file = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(data)
            _hand_over(half, folder)
            os.replace(half, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(half, dir_fd=folder)
            raise
    except OSError as error:
        raise _trouble(error, path) from None


def _hand_over(name: str, folder: int) -> None:
    """What root makes belongs to whom the folder belongs to, so that a confined command can work on it."""
    if os.geteuid() == 0:
        owner = os.fstat(folder)
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


def _entries(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _listed(entry: os.DirEntry[str], prefix: str) -> FileEntry:
    name = f"{prefix}/{entry.name}" if prefix else entry.name
    folder = entry.is_dir(follow_symlinks=False)
    return FileEntry(f"{name}/" if folder else name, 0 if folder else entry.stat(follow_symlinks=False).st_size)


def _matches(folder: int, prefix: str, wanted: str) -> Iterator[tuple[str, int, str]]:
    for entry in _entries(folder):
        name = f"{prefix}/{entry.name}" if prefix else entry.name
        try:
            if entry.is_dir(follow_symlinks=False):
                inner = os.open(entry.name, _FOLDER, dir_fd=folder)
                try:
                    yield from _matches(inner, name, wanted)
                finally:
                    os.close(inner)
            elif entry.is_file(follow_symlinks=False):
                with _file(folder, entry.name, name) as file:
                    text = os.pread(file, _MOST_SEARCHED, 0).decode(errors="replace")
                for number, line in enumerate(text.splitlines(), start=1):
                    if wanted in line.casefold():
                        yield name, number, line
        except (OSError, WorkspaceFileError):
            continue  # it went, or changed into something else, while we were looking


def _all(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as opened:
        return opened.read()


def _trouble(error: OSError, path: str) -> WorkspaceFileError | OutsideWorkspace:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return _not_through(path)
    if error.errno == errno.ENOTDIR:
        return WorkspaceFileError(
            f"{path} leads through something that is not a folder, or a symbolic link.", "Name files by their own path."
        )
    return WorkspaceFileError(f"{path}: {error.strerror}.", "List the folder to see what is there.")


def _not_through(path: str) -> OutsideWorkspace:
    return OutsideWorkspace(f"{path!r} is a symbolic link, and those are not followed.", "Name the file itself.")
