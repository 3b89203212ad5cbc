"""A document while people type in it: one text, every keystroke numbered, so that all see the same. F9

This is the central side of CodeMirror's collaborative editing. Whoever is up to date may add; whoever is not is told
what they missed, puts their own after it and tries again. So nothing typed is ever overwritten or lost. Lengths count
UTF-16 units, as browsers do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from coterie.base.ids import new_id
from coterie.modes.draft.diff import TextEdit, apply_edits, edits_between
from coterie.modes.draft.errors import BadKeystrokes
from coterie.modes.draft.git.repository import Contributor

ChangeSection = int | list[int | str]
"""So many characters kept; or so many gone, and the lines that stand there instead."""
_MOST_KEPT = 5_000
"""Updates that are remembered: a browser that slept through more of them starts over from the text."""
_LONGEST = 4_000_000
_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Update:
    client: str
    """Which page typed it; empty for what came by a commit."""
    changes: list[ChangeSection]


@dataclass(slots=True)
class LiveDocument:
    document: str
    branch: str
    base: str
    """The text that Git has."""
    blob: str
    text: str
    epoch: str = field(default_factory=new_id)
    """Numbers of another epoch mean nothing in this one: the server was started again."""
    writers: dict[str, Contributor] = field(default_factory=dict)
    """Who typed since the last commit."""
    rooms: set[str] = field(default_factory=set)
    """The threads they had open."""
    saved_version: int = 0
    """The number at which the text was what Git has."""
    _updates: list[Update] = field(default_factory=list)
    _forgotten: int = 0

    @property
    def version(self) -> int:
        return self._forgotten + len(self._updates)

    @property
    def unsaved(self) -> bool:
        return self.text != self.base

    def updates_since(self, version: int) -> list[Update] | None:
        """What came after a number; None if that is too long ago, or never was."""
        if not self._forgotten <= version <= self.version:
            return None
        return self._updates[version - self._forgotten :]

    def add_updates(self, updates: Sequence[Update], person: Contributor, room: str | None) -> None:
        """Add what somebody typed who knows everything up to now. All of it is taken, or none."""
        text = self.text
        for update in updates:
            text = apply_changes(text, update.changes)
        self._add(updates, text)
        if _HALF.search(text):
            # Half a character can be typed, but not written to a file: everybody sees what it becomes.
            edits = [TextEdit(half.start(), half.end(), "\ufffd") for half in _HALF.finditer(text)]
            self._add([Update("", changes_from_edits(text, edits))], apply_edits(text, edits))
        if updates and self.unsaved:
            self.writers[person.id] = person
            if room is not None:
                self.rooms.add(room)

    def merge_saved(self, text: str, blob: str) -> None:
        """Git has another version now. What was typed meanwhile stays, beside what came if both meant one place."""
        together = merge_keeping_both(self.base, self.text, text)
        if together != self.text:
            self._add([Update("", changes_from_edits(self.text, edits_between(self.text, together)))], together)
        self.base, self.blob = text, blob
        if together == text:
            self.clear_writers()

    def mark_saved(self, text: str, blob: str) -> None:
        """What was typed here is in Git now, and perhaps more."""
        if text != self.text:
            self._add([Update("", changes_from_edits(self.text, edits_between(self.text, text)))], text)
        self.base, self.blob = text, blob
        self.clear_writers()

    def clear_writers(self) -> None:
        """What stands here is what Git has."""
        self.saved_version = self.version
        self.writers.clear()
        self.rooms.clear()

    def _add(self, updates: Sequence[Update], text: str) -> None:
        self._updates += updates
        self.text = text
        if len(self._updates) > 2 * _MOST_KEPT:
            forget = min(len(self._updates) - _MOST_KEPT, self.saved_version - self._forgotten)
            del self._updates[:forget]
            self._forgotten += forget


def apply_changes(text: str, changes: Sequence[ChangeSection]) -> str:
    """A text after one update, in the form in which CodeMirror writes a set of changes."""
    raw = text.encode("utf-16-le", "surrogatepass")
    parts: list[bytes] = []
    at = 0
    for section in changes:
        length, *lines = [section] if isinstance(section, int) else section
        if not isinstance(length, int) or length < 0:
            raise _bad()
        end = at + 2 * length
        if isinstance(section, int):
            parts.append(raw[at:end])
        elif lines:
            parts.append("\n".join(map(str, lines)).encode("utf-16-le", "surrogatepass"))
        at = end
    if at != len(raw) or sum(map(len, parts)) > 2 * _LONGEST:
        raise _bad()
    return b"".join(parts).decode("utf-16-le", "surrogatepass")


def changes_from_edits(text: str, edits: Sequence[TextEdit]) -> list[ChangeSection]:
    """Edits, in the text's order, as CodeMirror writes a set of changes."""
    sections: list[ChangeSection] = []
    at = 0
    for edit in edits:
        if edit.start > at:
            sections.append(utf16_length(text[at : edit.start]))
        sections.append([utf16_length(text[edit.start : edit.end]), *(edit.text.split("\n") if edit.text else [])])
        at = edit.end
    if at < len(text):
        sections.append(utf16_length(text[at:]))
    return sections


def utf16_length(text: str) -> int:
    """The length of a text as browsers count it."""
    return len(text) + sum(character > "\uffff" for character in text)


def merge_keeping_both(base: str, ours: str, theirs: str) -> str:
    """Both sides' edits of one text; where both wrote in one place, ours and then theirs, for a person to sort out."""
    mine, yours = edits_between(base, ours), edits_between(base, theirs)
    together: list[TextEdit] = []
    for edit in sorted({*mine, *yours}, key=lambda edit: (edit.start, edit.end, edit in yours)):
        last = together[-1] if together else None
        if last is None or edit.start > last.end or (edit.start == last.end and last.start < last.end):
            together.append(edit)
        else:
            together[-1] = TextEdit(last.start, max(last.end, edit.end), last.text + edit.text)
    return apply_edits(base, together)


def _bad() -> BadKeystrokes:
    return BadKeystrokes("These changes are not about the text as it is here.", "Reload the document.")
