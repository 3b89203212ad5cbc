"""The only deletion there is: what is erased is nowhere, and the log says that it was."""

from __future__ import annotations

import random

import pytest

from bench.lib.sample_events import sample_draft, sample_projections
from coterie.base.paths import Paths
from coterie.eventstore import LogReader, NewJob, Purged, Store
from coterie.eventstore.sqlite.snapshots import write_snapshot
from tests.cli.conftest import Call, everything_in

ERASED = b"xylophone"


def holding(home: Paths) -> list[str]:
    return [name for name, content in everything_in(home.root).items() if ERASED in content]


def test_erased_words_are_found_nowhere(lived_in: Paths, process: Call, call: Call) -> None:
    store = Store.open(lived_in.database, projections=sample_projections())
    store.append_blocking([], jobs=[NewJob("embed", "embed:other")])
    write_snapshot(store.reader.connections, store.projections, lived_in.periodic_snapshots / "1.snapshot")
    write_snapshot(store.reader.connections, store.projections, lived_in.rewind_snapshots / "2.snapshot")
    (lived_in.periodic_snapshots / "3.partial").write_bytes(ERASED)
    chance = random.Random(3)
    store.append_blocking([sample_draft(chance, "room:a", number) for number in range(60, 90)])
    store.close()
    assert len(holding(lived_in)) == 4
    answer = process("purge", "room:b", "--yes", "--reason", "asked to")
    assert answer.code == 0, answer.err
    assert answer.out == "Erased 2 events of room:b; event 93 of the log records it.\n"
    assert holding(lived_in) == []
    reader = LogReader(lived_in.database)
    (event,) = reader.read("instance")
    assert event.payload == Purged(stream="room:b", events=2, first_seq=1, last_seq=2, reason="asked to")
    assert event.actor == "owner"
    reader.close()
    assert call("verify").code == 0


def test_only_a_part(lived_in: Paths, call: Call) -> None:
    assert call("purge", "room:b", "--first", "2", "--last", "2", "--yes").code == 0
    content = lived_in.database.read_bytes()
    assert b"xylophone is at 1" in content
    assert b"xylophone is at 2" not in content
    assert call("verify").code == 0


def test_backups_and_kept_copies_are_named_and_go_when_asked(lived_in: Paths, call: Call) -> None:
    call("backup")
    (path,) = lived_in.backups.iterdir()
    call("restore", str(path), "--yes")
    answer = call("purge", "room:b", "--yes")
    assert answer.code == 0
    assert "2 backups and copies still hold them" in answer.err
    assert len(holding(lived_in)) == 2
    answer = call("purge", "room:a", "--yes", "--backups")
    assert answer.code == 0
    assert holding(lived_in) == []
    assert call("verify").code == 0


def test_it_asks_first(lived_in: Paths, process: Call) -> None:
    before = everything_in(lived_in.root)
    answer = process("purge", "room:b")
    assert answer.code == 1
    assert "Erase events 1 to 2 of room:b permanently?" in answer.out + answer.err
    assert everything_in(lived_in.root) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["room:none"], "There is no stream room:none."),
        (["room:b", "--first", "3"], "room:b has no events 3 to 2: its last is 2."),
        (["room:b", "--first", "2", "--last", "1"], "room:b has no events 2 to 1"),
        (["room:b", "--last", "9"], "room:b has no events 1 to 9: its last is 2."),
    ],
)
def test_what_is_not_there_cannot_be_erased(lived_in: Paths, call: Call, arguments: list[str], told: str) -> None:
    before = everything_in(lived_in.root)
    answer = call("purge", *arguments, "--yes")
    assert answer.code == 10
    assert told in answer.err
    assert "nothing was erased" in answer.err
    assert everything_in(lived_in.root) == before


def test_it_needs_the_file_to_itself(lived_in: Paths, call: Call) -> None:
    store = Store.open(lived_in.database, projections=sample_projections())
    answer = call("purge", "room:b", "--yes")
    store.close()
    assert answer.code == 4
