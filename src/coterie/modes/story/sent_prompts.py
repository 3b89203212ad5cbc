"""The prompts that were sent to models: read for the prompt inspector, and converted from earlier versions.

The parts of a prompt are shared texts of the event store: most parts of a prompt were in earlier ones too, and are
stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.conversation import NoSuchTurn
from coterie.eventstore import Event, Projection, Ranges, Rows, Store, StoredPayload, on, rewriter, upcaster
from coterie.modes.story.events import PromptSent, SentPromptPart

Fields = dict[str, Any]


@dataclass(frozen=True)
class InspectedPrompt:
    sent: PromptSent
    parts: list[SentPromptPart]
    """All parts with their texts, in the order of sending."""


class PromptProjection(Projection):
    name = "story_prompts"
    stream_column = "room"
    schema = """
        CREATE TABLE prompt(room TEXT, reply TEXT, seq INTEGER NOT NULL, PRIMARY KEY(room, reply)) WITHOUT ROWID;
        CREATE TABLE lore_match(room TEXT, book TEXT, entry TEXT, messages INTEGER NOT NULL,
            PRIMARY KEY(room, book, entry)) WITHOUT ROWID;
    """

    @on(PromptSent)
    def sent(self, rows: Rows, event: Event[PromptSent]) -> None:
        rows.run("INSERT OR REPLACE INTO prompt VALUES (?, ?, ?)", (event.stream, event.payload.reply, event.seq))
        for used in event.payload.lore:
            if used.messages is not None:
                params = (event.stream, used.book, used.entry, used.messages)
                rows.run("INSERT OR REPLACE INTO lore_match VALUES (?, ?, ?, ?)", params)


class PromptQueries:
    """The prompts of all chats, for the prompt inspector."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def lore_matches(self, room: str) -> dict[tuple[str, str], int]:
        """The entries, by lorebook and key, that matched before, and how many messages the chat had when they last did.

        Only those whose use depends on it.
        """
        rows = self._store.query("SELECT book, entry, messages FROM lore_match WHERE room = ?", (room,))
        return {(book, entry): messages for book, entry, messages in rows}

    def inspect(self, room: str, reply: str) -> InspectedPrompt:
        for (seq,) in self._store.query("SELECT seq FROM prompt WHERE room = ? AND reply = ?", (room, reply)):
            for event in self._store.reader.events_at(room, Ranges([(seq, seq)])):
                if isinstance(event.payload, PromptSent):
                    texts = self._store.reader.shared_texts(event.payload.shared_numbers())
                    return InspectedPrompt(event.payload, event.payload.stored_parts(texts))
        raise NoSuchTurn("Nothing was sent to a model for this turn.", "Choose a turn that a model wrote.")


# Version 1 gave the texts of parts by hash, and only those that were new in the chat. Version 2 gave the parts that
# differed from an earlier prompt (`base`), and ranges of that one for the others.


@upcaster("prompt_sent", 1)
def _with_own_texts(fields: Fields) -> Fields:
    return _version_2(fields, fields["texts"])


@upcaster("prompt_sent", 2)
def _with_own_parts(fields: Fields) -> Fields:
    return _version_3(fields, [part for part in fields["parts"] if isinstance(part, dict)])


def _version_2(fields: Fields, texts: dict[str, str]) -> Fields:
    parts = [
        {**{name: value for name, value in part.items() if name != "sha"}, "text": texts.get(part["sha"], "")}
        for part in fields["parts"]
    ]
    return {**{name: value for name, value in fields.items() if name != "texts"}, "parts": parts}


def _version_3(fields: Fields, parts: Sequence[Fields]) -> Fields:
    return {**{name: value for name, value in fields.items() if name not in ("base", "depth")}, "parts": parts}


@rewriter("prompt_sent", 1)
def _share_texts_of_version_1(
    read: Callable[[], Iterator[StoredPayload]], owner: Callable[[str, int], str]
) -> Iterator[tuple[int, PromptSent]]:
    texts: dict[str, str] = {}
    for stored in read():
        texts |= stored.fields["texts"]
    for stored in read():
        yield stored.event, PromptSent.model_validate(_version_2(stored.fields, texts))


@rewriter("prompt_sent", 2)
def _share_texts_of_version_2(
    read: Callable[[], Iterator[StoredPayload]], owner: Callable[[str, int], str]
) -> Iterator[tuple[int, PromptSent]]:
    prompts: dict[tuple[str, int], list[Fields]] = {}
    for stored in read():
        base_seq = stored.fields.get("base", 0)
        base = prompts.get((owner(stored.stream, base_seq), base_seq), [])  # empty if it was purged
        parts: list[Fields] = []
        for item in stored.fields["parts"]:
            parts.extend([item] if isinstance(item, dict) else base[item[0] : item[0] + item[1]])
        prompts[stored.stream, stored.seq] = parts
        yield stored.event, PromptSent.model_validate(_version_3(stored.fields, parts))
