"""Live editing: the central side of CodeMirror's collaborative editing.

While a document is open in an editor, the server keeps its text and every update since, numbered. Updates made to the
newest number are applied; a client that is behind gets the updates it missed, rebases its own and tries again. Lengths
count UTF-16 units, as browsers do. After a pause, typed text is committed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from coterie.base.ids import new_id
from coterie.base.logging import get_logger
from coterie.base.supervisor import SupervisedTask, Supervisor, describe
from coterie.eventstore import BusMessage, NewEvent, Store, subject_token
from coterie.modes.draft.committer import CommitResult
from coterie.modes.draft.diff import TextEdit, apply_edits, edits_between, merge_keeping_both
from coterie.modes.draft.errors import InvalidUpdate, LiveDocumentGone
from coterie.modes.draft.events import DocumentSaved, ThreadNoted
from coterie.modes.draft.git import (
    CO_AUTHOR_TRAILER,
    CommitMessage,
    Contributor,
    DocumentVersion,
    EditFunction,
    check_text,
    document_title,
)

COMMIT_PAUSE_S = 1.5
"""Typed text is committed after a pause of this length."""
COMMIT_LATEST_S = 15.0
"""Without a pause, it is committed after this time."""
ChangeSection = int | list[int | str]
"""A number of units kept; or a number of units deleted and the lines inserted instead."""
_UPDATES_KEPT = 5_000
"""A client that missed more updates has to reload the text."""
_MAX_LENGTH = 4_000_000
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_log = get_logger(__name__)

Commit = Callable[[str, str, str, EditFunction, Contributor, CommitMessage], Awaitable[CommitResult | None]]
"""Commits an edit: workspace, document, branch, edit, author, message."""
CommitTyping = Callable[[str, str, str], Awaitable[None]]
"""Commits the typed text of a document: workspace, document, branch."""
_Key = tuple[str, str, str]
"""Workspace, branch, document."""


@dataclass(frozen=True, slots=True)
class Update:
    client: str
    """The page that sent it; empty for an update that comes from a commit."""
    changes: list[ChangeSection]


@dataclass(slots=True)
class LiveDocument:
    """The text of an open document, and its recent updates."""

    document: str
    branch: str
    base: str
    """The committed text."""
    blob: str
    text: str
    epoch: str = field(default_factory=new_id)
    """Update numbers are valid in one epoch only: a restart of the server begins a new one."""
    writers: dict[str, Contributor] = field(default_factory=dict)
    """Who typed since the last commit."""
    rooms: set[str] = field(default_factory=set)
    """The threads that the writers had open."""
    saved_version: int = 0
    """The number at which the text was the committed one."""
    _updates: list[Update] = field(default_factory=list)
    _discarded: int = 0

    @property
    def version(self) -> int:
        return self._discarded + len(self._updates)

    @property
    def unsaved(self) -> bool:
        return self.text != self.base

    @property
    def title(self) -> str:
        return document_title(self.document, self.text)

    def updates_since(self, version: int) -> list[Update] | None:
        """The updates after a number; None if it is unknown, or too long ago."""
        if not self._discarded <= version <= self.version:
            return None
        return self._updates[version - self._discarded :]

    def add_updates(self, updates: Sequence[Update], contributor: Contributor, room: str | None) -> None:
        """Apply updates made to the current version: all of them, or none if one is invalid."""
        text = self.text
        for update in updates:
            text = apply_changes(text, update.changes)
        check_text(text, self.base)
        self._append(updates, text)
        if _LONE_SURROGATE.search(text):
            # It can be typed, but not be encoded as UTF-8.
            edits = [TextEdit(found.start(), found.end(), "\ufffd") for found in _LONE_SURROGATE.finditer(text)]
            self._append([Update("", changes_from_edits(text, edits))], apply_edits(text, edits))
        if updates and self.unsaved:
            self.writers[contributor.id] = contributor
            if room is not None:
                self.rooms.add(room)

    async def merge_saved(self, version: DocumentVersion) -> None:
        """Another version was committed. Typed text is kept, next to the committed one if both changed one place.

        The branch's lock must be held, so that nothing is typed meanwhile.
        """
        await self._rebase(version, await asyncio.to_thread(merge_keeping_both, self.base, self.text, version.text))

    async def mark_saved(self, version: DocumentVersion) -> None:
        """The typed text was committed, perhaps merged with another version. The branch's lock must be held."""
        await self._rebase(version, version.text)

    async def _rebase(self, version: DocumentVersion, text: str) -> None:
        if text != self.text:
            # In a thread: a document of megabytes with as many changes takes seconds.
            changes = await asyncio.to_thread(_changes_between, self.text, text)
            self._append([Update("", changes)], text)
        self.base, self.blob = version.text, version.blob
        if not self.unsaved:
            self.saved_version = self.version
            self.writers.clear()
            self.rooms.clear()

    def _append(self, updates: Sequence[Update], text: str) -> None:
        self._updates += updates
        self.text = text
        if len(self._updates) > 2 * _UPDATES_KEPT:
            discard = min(len(self._updates) - _UPDATES_KEPT, self.saved_version - self._discarded)
            del self._updates[:discard]
            self._discarded += discard


def _changes_between(old: str, new: str) -> list[ChangeSection]:
    return changes_from_edits(old, edits_between(old, new))


class LiveDocuments:
    """The live documents of this process, and the timers that commit what was typed in them."""

    def __init__(self, store: Store, supervisor: Supervisor, commit: Commit, commit_typing: CommitTyping) -> None:
        self._store = store
        self._supervisor = supervisor
        self._commit = commit
        self._commit_typing = commit_typing
        self._documents: dict[_Key, LiveDocument] = {}
        self._timers: dict[_Key, SupervisedTask] = {}
        self._typing_since: dict[_Key, float] = {}
        self._commit_at: dict[_Key, float] = {}

    def get(self, workspace: str, document: str, branch: str) -> LiveDocument | None:
        return self._documents.get((workspace, branch, document))

    def of_epoch(self, workspace: str, document: str, branch: str, epoch: str) -> LiveDocument:
        live = self.get(workspace, document, branch)
        if live is None or live.epoch != epoch:
            raise LiveDocumentGone(
                "This page is about an earlier run of Coterie.", "What you typed is merged in; continue."
            )
        return live

    def open(self, workspace: str, version: DocumentVersion) -> LiveDocument:
        key = (workspace, version.branch, version.path)
        if key not in self._documents:
            self._documents[key] = LiveDocument(version.path, version.branch, version.text, version.blob, version.text)
        return self._documents[key]

    def open_documents(self, workspace: str, branch: str) -> set[str]:
        return {key[2] for key in self._documents if key[:2] == (workspace, branch)}

    def revision(self, workspace: str, document: str, branch: str) -> int:
        """Grows with every update and every commit; 0 if the document is not open."""
        live = self.get(workspace, document, branch)
        return 0 if live is None else 2 * live.version + (not live.unsaved)

    def schedule_commit(self, workspace: str, live: LiveDocument) -> None:
        """Publish new updates, and put off the next commit."""
        self._publish(workspace, live)
        key = (workspace, live.branch, live.document)
        now = asyncio.get_running_loop().time()
        since = self._typing_since.setdefault(key, now)
        self._commit_at[key] = min(now + COMMIT_PAUSE_S, since + COMMIT_LATEST_S)
        if key not in self._timers or self._timers[key].done:
            name = f"commit of typed text: {live.document} ({live.branch}, {workspace})"
            self._timers[key] = self._supervisor.start(name, partial(self._commit_when_due, key))

    async def commit(self, workspace: str, document: str, branch: str) -> None:
        """Commit typed text, if there is any. The branch's lock must be held."""
        live = self.get(workspace, document, branch)
        if live is None or not live.unsaved:
            return
        contributors = list(live.writers.values())
        first, *others = contributors
        co_authors = [f"{other.author.name} <{other.author.email}>" for other in others]
        message = CommitMessage(f"Edit {document}", trailers={CO_AUTHOR_TRAILER: co_authors})

        def edit(version: DocumentVersion | None) -> str | None:
            if version is None or version.blob == live.blob:
                return live.text
            return merge_keeping_both(live.base, live.text, version.text)

        result = await self._commit(workspace, document, branch, edit, first, message)
        if result is None:
            return
        new_events = saved_events(workspace, result.version, contributors, live.rooms)
        await live.mark_saved(result.version)
        await self._store.append(new_events)
        self._publish(workspace, live)

    async def merge_saved(self, workspace: str, version: DocumentVersion) -> None:
        """Show a committed version in the open editors of a document."""
        live = self.get(workspace, version.path, version.branch)
        if live is not None and (live.blob != version.blob or live.unsaved):
            await live.merge_saved(version)
            self._publish(workspace, live)

    async def close(self) -> None:
        """Commit all typed text, before the server stops."""
        for timer in self._timers.values():
            await timer.stop()
        self._timers.clear()
        for (workspace, branch, document), live in list(self._documents.items()):
            if live.unsaved:
                try:
                    await self._commit_typing(workspace, document, branch)
                except Exception as error:
                    _log.error("typed text not committed", document=document, error=describe(error)[0])
        self._documents.clear()

    async def _commit_when_due(self, key: _Key) -> None:
        """Commit after a pause in typing. If that fails, the text is still here and in the pages that have it open."""
        workspace, branch, document = key
        while (due := self._commit_at.get(key)) is not None:
            if (wait := due - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(wait)
                continue
            self._typing_since.pop(key, None)
            await self._commit_typing(workspace, document, branch)
            if self._commit_at.get(key) == due:
                del self._commit_at[key]
        del self._timers[key]

    def _publish(self, workspace: str, live: LiveDocument) -> None:
        self._store.bus.publish([BusMessage(f"live_document.{subject_token(workspace)}", live.version)])


def saved_events(
    workspace: str, version: DocumentVersion, contributors: Sequence[Contributor], rooms: Collection[str]
) -> list[NewEvent]:
    """The events of a version that people wrote, with a note in each of their threads."""
    actor = contributors[0].id
    saved = DocumentSaved(document=version.path, branch=version.branch, commit=version.commit, blob=version.blob)
    names = " and ".join(contributor.name for contributor in contributors)
    note = ThreadNoted(text=f"{names} edited the document.", about=version.commit)
    return [
        NewEvent(f"draft:{workspace}", saved, actor, key=f"save:{version.commit}"),
        *(NewEvent(room, note, actor) for room in sorted(rooms)),
    ]


def apply_changes(text: str, changes: Sequence[ChangeSection]) -> str:
    """The text after one update, in CodeMirror's JSON form of a change set."""
    raw = text.encode("utf-16-le", "surrogatepass")
    parts: list[bytes] = []
    position = 0
    for section in changes:
        length, *lines = [section] if isinstance(section, int) else section or [""]
        if not isinstance(length, int) or length < 0:
            raise _invalid_update()
        end = position + 2 * length
        if isinstance(section, int):
            parts.append(raw[position:end])
        elif lines:
            parts.append("\n".join(map(str, lines)).encode("utf-16-le", "surrogatepass"))
        position = end
    if position != len(raw) or sum(map(len, parts)) > 2 * _MAX_LENGTH:
        raise _invalid_update()
    return b"".join(parts).decode("utf-16-le", "surrogatepass")


def changes_from_edits(text: str, edits: Sequence[TextEdit]) -> list[ChangeSection]:
    """Edits, in the text's order, in CodeMirror's JSON form of a change set."""
    sections: list[ChangeSection] = []
    position = 0
    for edit in edits:
        if edit.start > position:
            sections.append(utf16_length(text[position : edit.start]))
        sections.append([utf16_length(text[edit.start : edit.end]), *(edit.text.split("\n") if edit.text else [])])
        position = edit.end
    if position < len(text):
        sections.append(utf16_length(text[position:]))
    return sections


def utf16_length(text: str) -> int:
    """The length of a text as browsers count it."""
    return len(text) + sum(character > "\uffff" for character in text)


def _invalid_update() -> InvalidUpdate:
    return InvalidUpdate("These changes are not about the text as it is here.", "Reload the document.")
