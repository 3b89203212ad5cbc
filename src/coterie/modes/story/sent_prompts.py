"""The prompts that were sent to models: stored as differences from earlier prompts, and read for the prompt inspector.

Consecutive prompts of a chat share almost all of their parts, so each is stored as the parts that changed
and the ranges that did not. After `MAX_DEPTH` of them one is stored whole, which bounds what a reader has to load.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.conversation import NoSuchTurn
from coterie.eventstore import Event, Projection, Ranges, Rows, Store, StoredPayload, on, rewriter, upcaster
from coterie.modes.story.events import PromptSent, SentPromptPart

MAX_DEPTH = 100
_MAX_CACHED = 64

Parts = Sequence[SentPromptPart]
StoredParts = tuple[SentPromptPart | tuple[int, int], ...]


@dataclass(frozen=True)
class InspectedPrompt:
    sent: PromptSent
    parts: list[SentPromptPart]
    """All parts with their texts, in the order of sending."""


@dataclass(frozen=True)
class PromptBase:
    """An earlier prompt that the next one can be stored against."""

    seq: int
    depth: int
    parts: Parts


class PromptProjection(Projection):
    name = "story_prompts"
    stream_column = "room"
    schema = """
        CREATE TABLE prompt(room TEXT, reply TEXT, seq INTEGER NOT NULL, PRIMARY KEY(room, reply)) WITHOUT ROWID;
    """

    @on(PromptSent)
    def sent(self, rows: Rows, event: Event[PromptSent]) -> None:
        rows.run("INSERT OR REPLACE INTO prompt VALUES (?, ?, ?)", (event.stream, event.payload.reply, event.seq))


class PromptQueries:
    """The prompts of all chats, for the prompt inspector and as bases of the next ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[tuple[str, str], tuple[int, Parts]] = OrderedDict()
        """(chat, reply) → depth and parts of prompts that were assembled lately."""

    def inspect(self, room: str, reply: str) -> InspectedPrompt:
        rows = self._store.query("SELECT seq FROM prompt WHERE room = ? AND reply = ?", (room, reply))
        sent = self._read(room, rows[0][0]) if rows else None
        if sent is None:
            raise NoSuchTurn("Nothing was sent to a model for this turn.", "Choose a turn that a model wrote.")
        return InspectedPrompt(sent, list(self._resolve(room, sent)))

    def latest(self, room: str) -> PromptBase | None:
        """The newest prompt of a chat, unless the next one has to be stored whole."""
        rows = self._store.query("SELECT reply, seq FROM prompt WHERE room = ? ORDER BY reply DESC LIMIT 1", (room,))
        if not rows:
            return None
        reply, seq = rows[0]
        cached = self._cache.get((room, reply))
        if cached is None:
            sent = self._read(room, seq)
            if sent is None:
                return None
            cached = sent.depth, self._resolve(room, sent)
        depth, parts = cached
        return PromptBase(seq, depth, parts) if depth < MAX_DEPTH else None

    def remember(self, room: str, reply: str, depth: int, parts: Parts) -> None:
        """Keep an assembled prompt in memory, so that the next one needs no reading."""
        self._cache[room, reply] = depth, parts
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)

    def _read(self, room: str, seq: int) -> PromptSent | None:
        for event in self._store.reader.events_at(room, Ranges([(seq, seq)])):
            if isinstance(event.payload, PromptSent):
                return event.payload
        return None  # it was purged

    def _resolve(self, room: str, sent: PromptSent) -> Parts:
        chain = [sent]
        while chain[-1].base and (base := self._read(room, chain[-1].base)) is not None:
            chain.append(base)
        parts: Parts = ()
        for prompt in reversed(chain):
            parts = expand_parts(parts, prompt.parts)
        return parts


def shorten_parts(base: Parts, parts: Parts) -> StoredParts:
    """The parts of a prompt, with those that `base` has too replaced by ranges of it."""
    positions = {_identity(part): index for index, part in enumerate(base)}
    stored: list[SentPromptPart | tuple[int, int]] = []
    for part in parts:
        index = positions.get(_identity(part))
        last = stored[-1] if stored else None
        if index is None:
            stored.append(part)
        elif isinstance(last, tuple) and last[0] + last[1] == index:
            stored[-1] = (last[0], last[1] + 1)
        else:
            stored.append((index, 1))
    return tuple(stored)


def expand_parts(base: Parts, stored: StoredParts) -> Parts:
    """All parts of a prompt. Parts of a base that was purged are left out."""
    parts: list[SentPromptPart] = []
    for item in stored:
        if isinstance(item, tuple):
            parts.extend(base[item[0] : item[0] + item[1]])
        else:
            parts.append(item)
    return parts


def _identity(part: SentPromptPart) -> tuple[str, str, str, int, str]:
    return part.name, part.tier, part.role, part.tokens, part.text


@upcaster("prompt_sent", 1)
def _with_own_texts(fields: dict[str, Any]) -> dict[str, Any]:
    """Version 1 gave texts by hash, and only those that were new in the chat."""
    return _version_2(fields, fields["texts"])


def _version_2(fields: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    parts = [
        {**{name: value for name, value in part.items() if name != "sha"}, "text": texts.get(part["sha"], "")}
        for part in fields["parts"]
    ]
    return {**{name: value for name, value in fields.items() if name != "texts"}, "parts": parts}


@rewriter("prompt_sent", 1)
def _as_differences(read: Callable[[], Iterator[StoredPayload]]) -> Iterator[tuple[int, PromptSent]]:
    texts: dict[str, str] = {}
    for stored in read():
        texts |= stored.fields["texts"]
    base = PromptBase(0, 0, ())
    stream = ""
    for stored in read():
        whole = PromptSent.model_validate(_version_2(stored.fields, texts))
        parts = expand_parts((), whole.parts)
        if stored.stream != stream or base.depth >= MAX_DEPTH:
            stream, base = stored.stream, PromptBase(0, -1, ())
        changes = {"base": base.seq, "depth": base.depth + 1, "parts": shorten_parts(base.parts, parts)}
        yield stored.event, whole.model_copy(update=changes)
        base = PromptBase(stored.seq, base.depth + 1, parts)
