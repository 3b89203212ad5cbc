"""Reads and writes files of a workspace for workers, and nothing outside it.

Paths are opened as `coterie.base.folders` does: one name at a time, and never through a symbolic link. What the
character shares with everybody is below `/shared`, as for commands, and can only be read.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path, PurePosixPath

from coterie.base.errors import UnsafePath
from coterie.base.folders import Entry, Folder, split_path
from coterie.modes.desk.errors import OutsideWorkspace, WorkspaceFileError, WorkspaceFull

MAX_READ = 50_000
"""Bytes that one read returns."""
MAX_WRITTEN = 10 << 20
SHARED = "/shared"
_MAX_LISTED = 1_000
_MAX_FOUND = 100
_MAX_SEARCHED = 2 << 20
"""Of one file."""
_MAX_SEARCHED_TOTAL = 200 << 20
_MAX_SEARCHED_FILES = 20_000
_SEARCH_S = 20.0


@dataclass(frozen=True)
class FileEntry:
    name: str
    """Relative to the workspace; a folder ends with a slash."""
    size: int


@dataclass(frozen=True)
class WorkspaceFile:
    name: str
    """Its path in the workspace."""
    size: int
    changed: datetime


@dataclass(frozen=True)
class FileMatch:
    name: str
    line: int
    text: str


@dataclass(frozen=True)
class WorkspaceLimits:
    """What all files of a workspace may use together."""

    max_bytes: int = 1 << 30
    max_files: int = 20_000


@dataclass(frozen=True)
class Workspace:
    """The files that the workers of a conversation see."""

    folder: Path
    """Read and written."""
    shared: Mapping[str, Path] = field(default_factory=dict)
    """Files and folders that can be read below `/shared`, by their path there."""


class WorkspaceFiles:
    def __init__(self, workspace: Workspace, limits: WorkspaceLimits | None = None) -> None:
        self.workspace = workspace
        self._limits = limits or WorkspaceLimits()

    def read(self, path: str, *, offset: int = 0) -> str:
        """Up to `MAX_READ` bytes from `offset`, with a note if there are more."""
        with self._folder_of(path) as (folder, inner), folder.open_file(inner) as file:
            size = os.fstat(file.fileno()).st_size
            start = min(max(offset, 0), size)
            data = os.pread(file.fileno(), MAX_READ, start)
        rest = size - start - len(data)
        text = data.decode(errors="replace")
        return f"{text}\n[{rest} more bytes: read on from offset {size - rest}]" if rest > 0 else text

    def measure(self, path: str, most: int) -> tuple[int, bytes]:
        """The size of a file, and up to `most` bytes of its beginning."""
        with self._folder_of(path) as (folder, inner), folder.open_file(inner) as file:
            return os.fstat(file.fileno()).st_size, file.read(most)

    def write(self, path: str, text: str) -> None:
        """Replace the file atomically."""
        self._write(path, text.encode(), create_folders=True)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace `old`, which must occur exactly once, by `new`."""
        with self._folder_of(path, writing=True) as (folder, inner):
            data = folder.read(inner, MAX_WRITTEN + 1)
        if len(data) > MAX_WRITTEN:
            raise WorkspaceFileError(f"{path} is too large to edit.", "Use a command for it.")
        text = data.decode(errors="surrogateescape")
        count = text.count(old) if old else 0
        if count != 1:
            raise WorkspaceFileError(
                f"The text to replace occurs {count} times in {path}.", "Give a text that occurs exactly once."
            )
        self._write(path, text.replace(old, new).encode(errors="surrogateescape"))

    def entries(self, path: str = ".") -> list[FileEntry]:
        if path.rstrip("/") == SHARED:
            return [FileEntry(f"{SHARED}/{name}", 0) for name in sorted(self.workspace.shared)]
        with self._folder_of(path) as (folder, inner), folder.subfolder(inner) as listed:
            prefix = _prefix(path)
            return [_file_entry(entry, prefix) for entry in listed.entries()[:_MAX_LISTED]]

    def newest(self, most: int) -> list[WorkspaceFile]:
        """The files that were changed last, newest first, without hidden ones; none if there is no workspace yet."""
        found: list[WorkspaceFile] = []
        if not self.workspace.folder.is_dir():
            return found
        with self._folder_of(".") as (folder, _):
            for entry in islice(folder.walk(by_name=True), _MAX_SEARCHED_FILES):
                if entry.is_file and not any(part.startswith(".") for part in PurePosixPath(entry.path).parts):
                    changed = datetime.fromtimestamp(entry.status.st_mtime, UTC)
                    found.append(WorkspaceFile(entry.path, entry.status.st_size, changed))
        return sorted(found, key=lambda one: one.changed, reverse=True)[:most]

    def search(self, text: str, path: str = ".") -> list[FileMatch]:
        """Lines that contain `text`, ignoring case, in the files below a folder.

        A search ends after `_MAX_FOUND` matches, and at its limits of files, bytes and time.
        """
        if not text:
            raise WorkspaceFileError("There is nothing to search for.", "Give a text.")
        matches: list[FileMatch] = []
        with self._folder_of(path) as (folder, inner), folder.subfolder(inner) as searched:
            for name, number, line in _find_lines(searched, text.casefold()):
                matches.append(FileMatch(f"{_prefix(path)}{name}", number, line[:300]))
                if len(matches) == _MAX_FOUND:
                    break
        return matches

    def _write(self, path: str, data: bytes, *, create_folders: bool = False) -> None:
        if len(data) > MAX_WRITTEN:
            raise WorkspaceFileError(f"{path} would be {len(data)} bytes.", f"Write at most {MAX_WRITTEN}.")
        with self._folder_of(path, writing=True) as (folder, inner):
            self._check_total(folder, len(data))
            folder.write(inner, data, create_folders=create_folders)

    def _check_total(self, folder: Folder, added: int) -> None:
        limits = self._limits
        used = folder.usage(max_bytes=limits.max_bytes, max_files=limits.max_files)
        if used.bytes + added > limits.max_bytes or used.files >= limits.max_files:
            raise WorkspaceFull(
                f"The workspace is full: it may hold {limits.max_bytes >> 20} MB in {limits.max_files} files.",
                "Delete files with a command, then try again.",
            )

    @contextmanager
    def _folder_of(self, path: str, *, writing: bool = False) -> Iterator[tuple[Folder, str]]:
        """The open workspace and the path in it, or what is shared and the path in that."""
        root, inner = self.workspace.folder, path
        try:
            if PurePosixPath(path).is_relative_to(SHARED):
                if writing:
                    raise WorkspaceFileError(f"{path} can only be read.", "Write to a file of the workspace.")
                root, inner = self._shared_root(path)
            split_path(inner)  # refused before anything is opened
            with _open_root(root) as folder:
                yield folder, inner
        except UnsafePath as error:
            raise OutsideWorkspace(error.what, error.fix) from None
        except OSError as error:
            raise _file_error(error, path) from None

    def _shared_root(self, path: str) -> tuple[Path, str]:
        relative = PurePosixPath(path).relative_to(SHARED)
        for name, source in self.workspace.shared.items():
            if relative.is_relative_to(name):
                inner = relative.relative_to(name)
                return (source.parent, source.name) if source.is_file() else (source, str(inner))
        raise WorkspaceFileError(f"There is no {path}.", f"List {SHARED} to see what there is.")


def _open_root(root: Path) -> Folder:
    try:
        return Folder.open(root)
    except (OSError, UnsafePath):
        raise WorkspaceFileError("The workspace cannot be opened.", "Check that its folder exists.") from None


def _prefix(path: str) -> str:
    names = "/".join(part for part in PurePosixPath(path).parts if part not in (".", "/"))
    start = "/" if path.startswith("/") else ""
    return f"{start}{names}/" if names else ""


def _file_entry(entry: Entry, prefix: str) -> FileEntry:
    name = f"{prefix}{entry.name}"
    return FileEntry(f"{name}/", 0) if entry.is_folder else FileEntry(name, entry.status.st_size)


def _find_lines(folder: Folder, needle: str) -> Iterator[tuple[str, int, str]]:
    ends_at, files, total = time.monotonic() + _SEARCH_S, 0, 0
    for entry in folder.walk(by_name=True):
        if time.monotonic() > ends_at or files >= _MAX_SEARCHED_FILES or total >= _MAX_SEARCHED_TOTAL:
            return
        if not entry.is_file:
            continue
        files += 1
        try:
            data = Folder(entry.parent).read(entry.name, _MAX_SEARCHED)
        except (OSError, UnsafePath):
            continue  # deleted or replaced meanwhile
        total += len(data)
        for number, line in enumerate(data.decode(errors="replace").splitlines(), start=1):
            if needle in line.casefold():
                yield entry.path, number, line


def _file_error(error: OSError, path: str) -> WorkspaceFileError:
    if error.errno == errno.ENOTDIR:
        return WorkspaceFileError(f"{path} leads through something that is not a folder.", "List the folder first.")
    if error.errno in (errno.EINVAL, errno.EISDIR):
        return WorkspaceFileError(f"{path} is not a plain file.", "Name a file; list a folder instead.")
    return WorkspaceFileError(f"{path[:300]}: {error.strerror}.", "List the folder to see its files.")
