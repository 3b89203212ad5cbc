"""Folders in which somebody else may rename, replace and link at any moment.

Every name is opened relative to the open folder that contains it, and never through a symbolic link. There is no check
that is separate from the use, so that swapping a name meanwhile gains nothing. Trees of any depth are handled, also
those whose paths are longer than the system accepts.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from coterie.base.errors import UnsafePath
from coterie.base.ids import new_id

MAX_DEPTH = 100
"""Levels below a folder that `walk` descends; it keeps one descriptor open for each."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Non-blocking: opening a named pipe must not wait for a writer."""
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_FLAG = getattr(os, "O_PATH", 0)
_READABLE, _WRITABLE = 0o500, 0o700
_BLOCK = 512


@dataclass(frozen=True)
class Entry:
    """A name in a folder, as it was when it was read."""

    parent: int
    """The descriptor of its folder, open until the next entry is read."""
    name: str
    path: str
    """Relative to the folder where the walk began."""
    status: os.stat_result
    depth: int
    """1 for entries of the folder where the walk began."""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def identity(self) -> tuple[int, int]:
        return self.status.st_dev, self.status.st_ino

    @property
    def disk_bytes(self) -> int:
        return self.status.st_blocks * _BLOCK


@dataclass(frozen=True)
class Usage:
    """What the files and folders below a folder use. Hard links to the same file count once."""

    bytes: int = 0
    """On the disk."""
    files: int = 0
    """Files, folders, links and everything else that has a name."""
    too_deep: bool = False
    """There are folders below `MAX_DEPTH`, which are not counted."""
    sizes: Mapping[tuple[int, int], int] = field(default_factory=dict, compare=False)
    """The identity of each file and folder, with the length of its content."""


def split_path(path: str) -> tuple[str, ...]:
    """The names of a relative path. `UnsafePath` for absolute paths, `..`, and what no file system can store."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise UnsafePath(f"{path[:200]!r} leads out of the folder.", "Name files relative to it, without `..`.")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise UnsafePath(f"{path[:200]!r} cannot be the name of a file.", "Choose another name.") from None
    return pure.parts


class Folder:
    """An open folder. Paths of its methods are relative to it; a link on the way is an `UnsafePath`.

    Other failures are the system's `OSError`. Files and folders that root creates are given to the owner of the folder
    they are in.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Folder:
        """The folder at a path whose parents only the server can change. It must not be a link itself."""
        if create:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return cls(_open(str(path), _FOLDER_FLAGS))

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def subfolder(self, path: str, *, create: bool = False, mode: int = 0o755) -> Folder:
        return Folder(self._descend(split_path(path), path, create=create, mode=mode))

    def open_file(self, path: str) -> BinaryIO:
        """Open a plain file for reading."""
        with self._parent(path) as (parent, name):
            descriptor = _open(name, _READ_FLAGS, parent)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "Not a plain file", path)
        return os.fdopen(descriptor, "rb")

    def read(self, path: str, limit: int = -1) -> bytes:
        """The content of a plain file, at most `limit` bytes of it."""
        with self.open_file(path) as file:
            return file.read(limit)

    def create_file(self, path: str, mode: int = 0o600) -> BinaryIO:
        """A new file to write to. `FileExistsError` if there is anything of that name."""
        with self._parent(path) as (parent, name):
            return os.fdopen(_create(name, parent, mode), "wb")

    def write(
        self,
        path: str,
        data: bytes,
        *,
        mode: int | None = None,
        create_folders: bool = False,
        folder_mode: int = 0o755,
        durable: bool = False,
    ) -> None:
        """Replace a plain file atomically, or create it. By default an existing file keeps its permissions."""
        with self._parent(path, create=create_folders, mode=folder_mode) as (parent, name):
            permissions = _replaceable_mode(parent, name, path)
            temporary = f".new-{new_id()}"
            try:
                with os.fdopen(_create(temporary, parent, 0o600), "wb") as file:
                    file.write(data)
                    os.fchmod(file.fileno(), permissions if mode is None else mode)
                    if durable:
                        file.flush()
                        os.fsync(file.fileno())
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)
                raise
            if durable:
                os.fsync(parent)

    def status(self, path: str) -> os.stat_result:
        """The status of what has this name, which may be a link."""
        with self._parent(path) as (parent, name):
            return os.stat(name, dir_fd=parent, follow_symlinks=False)

    def entries(self) -> list[Entry]:
        """What is in the folder itself, by name."""
        return list(self.walk(max_depth=1, by_name=True))

    def walk(self, *, max_depth: int = MAX_DEPTH, by_name: bool = False, unlock: int = 0) -> Iterator[Entry]:
        """Everything below the folder, each folder before its contents; folders at `max_depth` are not entered.

        What disappears meanwhile, and what cannot be read, is left out. `unlock` are permissions that folders of our
        own get if they lack them, so that nothing can be hidden by taking them away.
        """
        with ExitStack() as stack:
            levels = [_Level(_reopen(self.descriptor), "", by_name)]
            stack.callback(_close_all, levels)
            while levels:
                level = levels[-1]
                entry = next(level.entries, None)
                if entry is None:
                    levels.pop().close()
                    continue
                try:
                    status = os.stat(entry, dir_fd=level.descriptor, follow_symlinks=False)
                except OSError:
                    continue
                found = Entry(level.descriptor, entry, f"{level.prefix}{entry}", status, len(levels))
                yield found
                if found.is_folder and len(levels) < max_depth:
                    with suppress(OSError, UnsafePath):
                        inner = _open_folder(entry, level.descriptor, unlock)
                        levels.append(_Level(inner, f"{found.path}/", by_name))

    def usage(self, *, max_bytes: int | None = None, max_files: int | None = None) -> Usage:
        """What is used below the folder. Counting ends as soon as it exceeds one of the limits."""
        used = files = 0
        too_deep = False
        sizes: dict[tuple[int, int], int] = {}
        for entry in self.walk(unlock=_READABLE):
            files += 1
            if entry.identity not in sizes:
                sizes[entry.identity] = entry.status.st_size
                used += entry.disk_bytes
            too_deep = too_deep or (entry.is_folder and entry.depth == MAX_DEPTH)
            if (max_bytes is not None and used > max_bytes) or (max_files is not None and files > max_files):
                break
        return Usage(used, files, too_deep, sizes)

    def remove(self, path: str) -> None:
        """Delete a file, a link, or a tree of any depth. Links in it are deleted, not followed."""
        with self._parent(path) as (parent, name):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                return
            # Inner folders are moved up, so that none is deeper than one level when it is emptied.
            pending = [name]
            while pending:
                current = pending.pop()
                pending += _empty(parent, current)
                os.rmdir(current, dir_fd=parent)

    def remove_empty(self, path: str) -> None:
        """Delete a folder; `OSError` if there is anything in it."""
        with self._parent(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    def flatten(self) -> int:
        """Move folders at `MAX_DEPTH` to the top, under names of their own, until there are none; returns how many."""
        moved = 0
        pending = ["."]
        while pending:
            top = pending.pop()
            max_depth = MAX_DEPTH if top == "." else MAX_DEPTH - 1
            with self.subfolder(top) as folder:
                for entry in folder.walk(max_depth=max_depth, unlock=_WRITABLE):
                    if entry.is_folder and entry.depth == max_depth:
                        os.close(_open_folder(entry.name, entry.parent, _WRITABLE))
                        pending.append(f"moved-{new_id()}")
                        os.rename(entry.name, pending[-1], src_dir_fd=entry.parent, dst_dir_fd=self.descriptor)
                        moved += 1
        return moved

    def cut_back(self, earlier: Usage) -> None:
        """Remove what is new since `earlier` was measured, and cut files that have grown to their length then."""
        new_folders = []
        for entry in self.walk(unlock=_WRITABLE):
            size = earlier.sizes.get(entry.identity)
            if entry.is_folder:
                if size is None:
                    new_folders.append(entry.path)
            elif size is None:
                with suppress(OSError):
                    os.unlink(entry.name, dir_fd=entry.parent)
            elif entry.is_file and entry.status.st_size > size:
                _truncate(entry, size)
        for path in new_folders:
            with suppress(OSError, UnsafePath):  # most are removed with the one that they are in
                self.remove(path)

    def give_to(self, owner: int) -> None:
        """Give what root owns in the folder, and the folder itself, to another user.

        Files with several names are left: another of them may be outside.
        """
        if os.fstat(self.descriptor).st_uid == 0:
            os.fchown(self.descriptor, owner, owner)
        for entry in self.walk():
            if entry.status.st_uid == 0 and (entry.is_folder or entry.status.st_nlink == 1):
                with suppress(OSError):  # deleted meanwhile
                    _chown(entry, owner)

    @contextmanager
    def _parent(self, path: str, *, create: bool = False, mode: int = 0o755) -> Iterator[tuple[int, str]]:
        """The open folder of a path's last name, and that name."""
        names = split_path(path)
        if not names:
            raise UnsafePath(f"{path[:200]!r} is not the name of a file.", "Name a file in the folder.")
        parent = self._descend(names[:-1], path, create=create, mode=mode)
        try:
            yield parent, names[-1]
        finally:
            os.close(parent)

    def _descend(self, names: tuple[str, ...], path: str, *, create: bool = False, mode: int = 0o755) -> int:
        current = _reopen(self.descriptor)
        for name in names:
            try:
                made = create and _make_folder(name, current, mode)
                inner = _open(name, _FOLDER_FLAGS, current, path)
                if made:
                    _give_to_owner_of(current, inner)
            finally:
                os.close(current)
            current = inner
        return current


class _Level:
    """One folder of a walk."""

    def __init__(self, descriptor: int, prefix: str, by_name: bool) -> None:
        self.descriptor = descriptor
        self.prefix = prefix
        names = os.listdir(descriptor)
        self.entries = iter(sorted(names) if by_name else names)

    def close(self) -> None:
        os.close(self.descriptor)


def _close_all(levels: list[_Level]) -> None:
    for level in levels:
        level.close()


def _open(name: str, flags: int, parent: int | None = None, path: str = "") -> int:
    try:
        return os.open(name, flags, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK) or (error.errno == errno.ENOTDIR and _may_be_link(name, parent)):
            raise UnsafePath(
                f"{(path or name)[:200]!r} is a symbolic link, which is not followed.", "Name the file itself."
            ) from None
        raise


def _open_folder(name: str, parent: int, unlock: int = 0) -> int:
    if unlock:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if status.st_mode & unlock != unlock and status.st_uid == os.geteuid() != 0 and stat.S_ISDIR(status.st_mode):
            # A descriptor of this kind needs no permissions, and stands for the folder and not for its name.
            handle = os.open(name, _PATH_FLAG | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                Path(f"/proc/self/fd/{handle}").chmod(stat.S_IMODE(status.st_mode) | unlock)
            finally:
                os.close(handle)
    return _open(name, _FOLDER_FLAGS, parent)


def _reopen(descriptor: int) -> int:
    """A descriptor with a position of its own, unlike a duplicate."""
    return os.open(".", _FOLDER_FLAGS, dir_fd=descriptor)


def _may_be_link(name: str, parent: int | None) -> bool:
    """Whether something that was not opened as a folder is a link. If it is a folder now, it was swapped."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError:
        return False
    return stat.S_ISLNK(mode) or stat.S_ISDIR(mode)


def _create(name: str, parent: int, mode: int) -> int:
    descriptor = os.open(name, _CREATE_FLAGS, mode, dir_fd=parent)
    _give_to_owner_of(parent, descriptor)
    return descriptor


def _make_folder(name: str, parent: int, mode: int) -> bool:
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _give_to_owner_of(parent: int, descriptor: int) -> None:
    """Give what root has just created to the owner of its folder, so that confined commands can change it."""
    if os.geteuid() == 0:
        owner, created = os.fstat(parent), os.fstat(descriptor)
        if created.st_uid == 0 and owner.st_uid != 0:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _replaceable_mode(parent: int, name: str, path: str) -> int:
    """The permissions of the plain file that is to be replaced, or of a new one."""
    try:
        existing = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISLNK(existing.st_mode):
        raise UnsafePath(f"{path[:200]!r} is a symbolic link, which is not followed.", "Name the file itself.")
    if not stat.S_ISREG(existing.st_mode):
        raise OSError(errno.EINVAL, "Not a plain file", path)
    return stat.S_IMODE(existing.st_mode) & 0o777


def _empty(parent: int, name: str) -> list[str]:
    """Delete what is in a folder; its folders that are not empty are moved beside it and returned."""
    moved = []
    inner = _open_folder(name, parent, _WRITABLE)
    try:
        for entry in os.listdir(inner):  # noqa: PTH208 - of a descriptor
            if not stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                os.unlink(entry, dir_fd=inner)
                continue
            try:
                os.rmdir(entry, dir_fd=inner)
            except OSError:
                os.close(_open_folder(entry, inner, _WRITABLE))
                target = f".removed-{new_id()}"
                os.rename(entry, target, src_dir_fd=inner, dst_dir_fd=parent)
                moved.append(target)
    finally:
        os.close(inner)
    return moved


def _truncate(entry: Entry, size: int) -> None:
    with suppress(OSError):
        descriptor = os.open(
            entry.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=entry.parent
        )
        try:
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)


def _chown(entry: Entry, owner: int) -> None:
    """Change the owner of what was looked at: its name may stand for something else by now."""
    handle = os.open(entry.name, _PATH_FLAG | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=entry.parent)
    try:
        status = os.fstat(handle)
        if (status.st_dev, status.st_ino) == entry.identity and not stat.S_ISLNK(status.st_mode):
            os.chown(f"/proc/self/fd/{handle}", owner, owner)
    finally:
        os.close(handle)
