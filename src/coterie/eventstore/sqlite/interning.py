"""Names and texts that many events repeat, stored once and referred to by number.

`name` holds streams, actors and turns; the view `event` joins them. `shared_text` holds texts by their content, such as
the pieces of prompts: payloads that repeat a text store its number (`Payload.share_texts`). Both are part of the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator

from coterie.eventstore.events import declared_kinds, decode_payload
from coterie.eventstore.sqlite.compression import compress, decompress
from coterie.eventstore.sqlite.database import Rows

_MAX_CACHED = 20_000
_PAGE = 2_000


class NameTable:
    """Numbers of names, added when they are used for the first time."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._numbers: dict[str, int] = {}

    def forget(self) -> None:
        """Discard the cache, after a rollback."""
        self._numbers.clear()

    def number(self, name: str) -> int:
        number: int | None = self._numbers.get(name)
        if number is None:
            known = self._rows.all("SELECT id FROM name WHERE name = ?", (name,))
            ((number,),) = known or self._rows.all("INSERT INTO name(name) VALUES (?) RETURNING id", (name,))
            if len(self._numbers) >= _MAX_CACHED:
                self._numbers.clear()
            self._numbers[name] = number
        return number

    def remove_unused(self) -> None:
        """Delete the names that no event refers to any more."""
        self._numbers.clear()
        self._rows.run(
            "DELETE FROM name WHERE id NOT IN (SELECT stream FROM log UNION SELECT actor FROM log"
            " UNION SELECT turn FROM log WHERE turn IS NOT NULL)"
        )


class SharedTexts:
    """Texts addressed by their content; equal texts have one number."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._numbers: dict[bytes, int] = {}

    def forget(self) -> None:
        """Discard the cache, after a rollback."""
        self._numbers.clear()

    def number(self, text: str) -> int:
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        number: int | None = self._numbers.get(digest)
        if number is None:
            hashed = _hash(digest)
            for known, content in self._rows.all("SELECT id, content FROM shared_text WHERE hash = ?", (hashed,)):
                if decompress(content) == text:
                    number = known
            if number is None:
                insert = "INSERT INTO shared_text(hash, content) VALUES (?, ?) RETURNING id"
                ((number,),) = self._rows.all(insert, (hashed, compress(text)))
            if len(self._numbers) >= _MAX_CACHED:
                self._numbers.clear()
            self._numbers[digest] = number
        return number

    def remove_unused(self) -> None:
        """Delete the texts that no event refers to any more."""
        self._numbers.clear()
        used = {number for _, numbers in shared_numbers(self._rows) for number in numbers}
        stored = {number for (number,) in self._rows.run("SELECT id FROM shared_text")}
        self._rows.many("DELETE FROM shared_text WHERE id = ?", [(number,) for number in stored - used])


def read_shared_texts(rows: Rows, numbers: Collection[int]) -> dict[int, str]:
    """Number → text, for those of the numbers that exist."""
    texts: dict[int, str] = {}
    for number in set(numbers):
        for (content,) in rows.all("SELECT content FROM shared_text WHERE id = ?", (number,)):
            texts[number] = decompress(content)
    return texts


def shared_numbers(rows: Rows) -> Iterator[tuple[int, Collection[int]]]:
    """Event id and the numbers of the shared texts it refers to, for every event of a kind that shares texts."""
    kinds = [kind for kind, payload in declared_kinds().items() if payload.shares_texts]
    after = 0
    sql = f"SELECT id, kind, version, payload FROM event WHERE id > ? AND kind IN ({', '.join('?' * len(kinds))})"
    while page := rows.all(f"{sql} ORDER BY id LIMIT {_PAGE}", (after, *kinds)):
        for event, kind, version, payload in page:
            yield event, decode_payload(event, kind, version, payload).shared_numbers()
        after = page[-1][0]


def check_shared_texts(rows: Rows) -> list[str]:
    """Compare the texts with their hashes, and the numbers in events with the texts. Returns problems as sentences."""
    problems: list[str] = []
    stored: set[int] = set()
    for number, hashed, content in rows.run("SELECT id, hash, content FROM shared_text"):
        stored.add(number)
        if _hash(hashlib.blake2b(decompress(content).encode(), digest_size=16).digest()) != hashed:
            problems.append(f"The shared text {number} differs from its hash.")
    for event, numbers in shared_numbers(rows):
        if missing := set(numbers) - stored:
            problems.append(f"Event {event} refers to shared texts that are missing: {sorted(missing)}.")
    return problems


def _hash(digest: bytes) -> int:
    """The part of a digest that is indexed."""
    return int.from_bytes(digest[:8], signed=True)
