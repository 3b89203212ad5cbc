"""S9: "Malformed files: a clear error, never a crash; a 100 MB or zip-bomb file is refused."

Five thousand spoilt cards. Each either imports, and then everything that is done with a card works on it, or is
refused with a reason; within seconds, within memory, and without a single write to the disk.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import pytest

from coterie.characters.cards import Card, CardFormat, LoreContext, Macros, export_card, find_lore, import_card
from coterie.characters.cards.parsing import MAX_FILE_BYTES
from coterie.characters.errors import CardError, CardTooBig, UnsafeCard
from coterie.characters.identity import Identity
from tests.characters.cards.mutations import mutated
from tests.characters.cards.samples import V3, charx_with, packed

BATCHES, BATCH = 10, 500
SECONDS = 20
MEGABYTES = 700

_writes: list[str] | None = None


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _writes is None:
        return
    if event == "open" and isinstance(arguments[2], int):
        if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            _writes.append(f"open {arguments[0]}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.symlink", "os.link", "os.truncate", "shutil.copyfile"):
        _writes.append(f"{event} {arguments[0]}")


sys.addaudithook(_watch)


@contextmanager
def no_writes() -> Iterator[None]:
    global _writes
    _writes = []
    try:
        yield
        assert _writes == []
    finally:
        _writes = None


@contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """A hang becomes a failure that names the card. Seconds of CPU count, so that a busy machine is no hang."""

    def out_of_time(*_: object) -> None:
        raise AssertionError(f"not done after {seconds} s of CPU")

    before = signal.signal(signal.SIGPROF, out_of_time)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def use(card: Card) -> None:
    """Everything the product does with a card."""
    for kind in get_args(CardFormat):
        again = import_card(export_card(card, kind).data, "again").card
        assert again.data == card.data
        if kind == "charx":
            assert again == card
    macros = Macros(char=card.char, user="Kim", rng=random.Random(1), seed="chat")
    for text in card.prompt_parts().model_dump(exclude={"greetings", "group_only_greetings"}).values():
        macros.expand(text).encode()
    if card.lorebook:
        moment = LoreContext(["the lamp", "a" * 2_000], replies=3, macros=macros)
        for lore in find_lore(card.lorebook, moment, len).included:
            lore.text.encode()
        card.lorebook.standalone()
    identity = Identity.from_card(card, "ada")
    assert identity.to_card(card) == card
    assert Identity.from_card(identity.model_copy(update={"persona": "new"}).to_card(card), "ada").persona == "new"


def test_the_write_monitor_detects_writes(tmp_path: Any) -> None:
    with pytest.raises(AssertionError, match="open"), no_writes():
        (tmp_path / "x").write_text("x")


@pytest.mark.parametrize("batch", range(BATCHES))
def test_s9_damaged_cards_are_read_or_refused_and_never_crash(batch: int) -> None:
    used = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        data = mutated(number)
        with bounded(SECONDS), no_writes():
            try:
                card = import_card(data, f"spoilt-{number}").card
            except CardError as error:
                assert error.what, number
                assert error.fix, number
                continue
            use(card)
            used += 1
    # Both ends of the law are exercised: many are refused, and many are forgiven.
    assert BATCH * 0.05 < used < BATCH * 0.9
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000
    assert grown < MEGABYTES


@pytest.mark.parametrize("size", [MAX_FILE_BYTES, 100 * 1024 * 1024])
def test_s9_a_file_of_100_mb_is_refused_before_it_is_read(size: int) -> None:
    with pytest.raises(CardTooBig, match="MB"):
        import_card(bytes(size), "big.charx")


@pytest.mark.parametrize(("size", "count"), [(12_000_000, 1), (60_000_000, 1), (1_000_000, 15), (60_000_000, 7)])
def test_s9_a_zip_bomb_is_refused(size: int, count: int) -> None:
    bomb = charx_with(V3, {f"assets/{number}": bytes(size) for number in range(count)})
    assert len(bomb) < 500_000
    with pytest.raises(UnsafeCard, match="zip bomb"):
        import_card(bomb, "bomb.charx")


def test_s9_a_path_outside_the_file_is_refused() -> None:
    with pytest.raises(UnsafeCard, match="leads out"):
        import_card(charx_with(V3, {"../../evil": b"x"}), "evil.charx")


def test_s9_deep_json_is_refused() -> None:
    with pytest.raises(CardTooBig, match="100 levels"):
        import_card(packed(V3)[:-1] + b', "x": ' + b"[" * 200 + b"]" * 200 + b"}", "deep.json")
