"""What stands beside a document: proposals as cards and as marks in the text, threads, and what was said. F2–F14"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coterie.base.redaction import redact
from coterie.characters.errors import NoSuchCharacter, NoSuchPerson
from coterie.conversation.turns import Turn
from coterie.modes.draft import LiveDocument, Proposal, ReplyText, Thread, parse_reply, utf16_length, word_diff
from coterie.surfaces.web.shared.dependencies import House
from coterie.surfaces.web.shared.labels import ReplyError, reply_error
from coterie.surfaces.web.shared.prose import clean_fragment, clean_line, excerpt
from coterie.surfaces.web.shared.templates import hue_class

_MOST_DECIDED = 30
HOW = {
    "exact": "",
    "normalised": "Found with other white space or quotes",
    "markup": "Found without Markdown’s signs",
    "ellipsis": "Found across an ellipsis",
    "fuzzy": "Found at the one place that is clearly nearest",
}
MISSING = {
    "absent": "These words are nowhere in the document.",
    "ambiguous": "These words stand in more than one place.",
}


@dataclass(frozen=True)
class ProposalCard:
    change: Proposal
    author: str
    pieces: tuple[tuple[str, str], ...]
    how: str
    missing: str

    @property
    def thread(self) -> str:
        return self.change.room.partition(":")[2]

    @property
    def open(self) -> bool:
        return self.change.state == "pending"

    @property
    def can_accept(self) -> bool:
        return self.open and self.change.fresh


@dataclass(frozen=True)
class ThreadRow:
    """A thread as the list shows it."""

    id: str
    title: str
    quote: str
    orphaned: bool
    messages: int
    speaking: bool


@dataclass(frozen=True)
class ThreadMessage:
    """A message of a thread, or a note that nobody said."""

    id: str
    seq: int
    name: str
    text: str
    by_person: bool = True
    note: bool = False
    quote: str = ""
    state: str = "done"
    at: datetime | None = None
    model: str = ""
    trouble: ReplyError | None = None
    proposals: tuple[tuple[str, str], ...] = ()
    """Of each the id, and what became of it."""


class NameCache:
    def __init__(self, house: House) -> None:
        self._house = house
        self._known: dict[str, str] = {}

    def __getitem__(self, who: str) -> str:
        if who not in self._known:
            self._known[who] = clean_line(self._name(who)) or "Somebody"
        return self._known[who]

    def _name(self, who: str) -> str:
        try:
            return self._house.people.person(who).name
        except NoSuchPerson:
            pass
        try:
            return self._house.characters.get(who).name
        except NoSuchCharacter:
            return "Somebody"


def proposal_cards(
    house: House, workspace: str, branch: str, path: str
) -> tuple[list[ProposalCard], list[ProposalCard]]:
    """Those that wait, in the document's order, and those decided last."""
    names = NameCache(house)
    found = house.draft.proposal_queries.of_document(workspace, branch, path)
    made = [_card(names, change) for change in found]
    waiting = sorted((card for card in made if card.open), key=lambda card: (not card.change.placed, card.change.start))
    decided = sorted((card for card in made if not card.open), key=lambda card: card.change.id, reverse=True)
    return waiting, decided[:_MOST_DECIDED]


def card(house: House, change: str) -> ProposalCard:
    return _card(NameCache(house), house.draft.proposal_queries.proposal(change))


def _card(names: NameCache, change: Proposal) -> ProposalCard:
    shown = "" if change.inserts else change.exact if change.placed else change.original
    decided = change.text if change.state == "edited-and-accepted" else change.proposed
    pieces = tuple((mark, clean_text(text)) for mark, text in word_diff(shown, decided))
    how = HOW.get(change.how or "", "") if change.placed else ""
    return ProposalCard(change, names[change.author], pieces, how, MISSING.get(change.missing, ""))


def clean_text(text: str) -> str:
    """Lines stay lines; what acts unseen goes."""
    return "\n".join(clean_fragment(line) for line in text.split("\n"))


def proposal_marks(house: House, workspace: str, sheet: LiveDocument) -> list[dict[str, Any]]:
    """Where each fresh proposal stands in the text that Git has, in the units of browsers."""
    names = NameCache(house)
    found: list[dict[str, Any]] = []
    for change in house.draft.proposal_queries.of_document(workspace, sheet.branch, sheet.document, "pending"):
        if not change.fresh or change.blob != sheet.blob:
            continue
        pieces = word_diff(change.exact, change.replacement())
        name = names[change.author]
        start = utf16_length(sheet.base[: change.start])
        found.append({"id": change.id, "start": start, "pieces": pieces, "name": name, "hue": hue_class(name)})
    return found


def thread_rows(house: House, workspace: str, branch: str, path: str, sheet: LiveDocument | None) -> list[ThreadRow]:
    found = []
    for thread in house.draft.thread_queries.threads(workspace, path, branch):
        place = house.draft.threads.anchor_in(thread, sheet.base, sheet.blob) if sheet is not None else None
        found.append(
            ThreadRow(
                thread.id,
                clean_line(thread.title),
                excerpt(thread.place.exact, 80) if thread.place else "",
                thread.place is not None and sheet is not None and place is None,
                len(house.draft.timeline.latest(thread.room, 500)),
                house.draft.replies.is_running(thread.room),
            )
        )
    return found


def thread_anchors(house: House, workspace: str, sheet: LiveDocument) -> list[dict[str, Any]]:
    """F3: where the words that threads are about stand now."""
    found: list[dict[str, Any]] = []
    for thread in house.draft.thread_queries.threads(workspace, sheet.document, sheet.branch):
        place = house.draft.threads.anchor_in(thread, sheet.base, sheet.blob)
        if place is not None:
            start = utf16_length(sheet.base[: place.start])
            length = utf16_length(sheet.base[place.start : place.end])
            found.append({"thread": thread.id, "start": start, "end": start + length})
    return found


def thread_messages(house: House, thread: Thread) -> list[ThreadMessage]:
    """Messages and notes in the order they came; the same note again and again is told once."""
    names = NameCache(house)
    said = [*_messages(house, thread, names), *_notes(house, thread)]
    return sorted(said, key=lambda one: one.seq)


def _messages(house: House, thread: Thread, names: NameCache) -> Iterator[ThreadMessage]:
    draft = house.draft
    changes = draft.proposal_queries.of_thread(thread.room)
    so_far = draft.replies.partial(thread.room)
    for turn in draft.timeline.latest(thread.room, 500):
        quote = draft.thread_queries.quote(thread.room, turn.id)
        spoken = so_far.text if so_far is not None and so_far.reply == turn.id else turn.text
        yield ThreadMessage(
            id=turn.id,
            seq=turn.seq,
            name=names[turn.speaker],
            text=_visible(turn, thread, spoken),
            by_person=turn.by_person,
            quote=excerpt(quote.exact, 240) if quote else "",
            state=turn.state,
            at=turn.at,
            model=clean_line(turn.model),
            trouble=reply_error(redact(turn.why), turn.status) if turn.state == "truncated" else None,
            proposals=tuple((one.id, _became(one)) for one in changes if one.reply == turn.id and not one.replaces),
        )


def _visible(turn: Turn, thread: Thread, text: str) -> str:
    if turn.by_person:
        return text
    pieces = parse_reply(text, thread.member(turn.speaker).format, complete=turn.state != "open")
    return "".join(piece.text for piece in pieces if isinstance(piece, ReplyText))


def _notes(house: House, thread: Thread) -> Iterator[ThreadMessage]:
    last = ""
    for note in house.draft.thread_queries.notes(thread.room):
        if note.text != last:
            yield ThreadMessage(f"note-{note.seq}", note.seq, "", clean_text(note.text), note=True)
        last = note.text


def _became(change: Proposal) -> str:
    if change.state == "pending":
        return "waits" if change.fresh else "stale" if change.placed else "not found"
    return {"edited-and-accepted": "accepted, edited"}.get(change.state, change.state)


def from_timestamp(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
