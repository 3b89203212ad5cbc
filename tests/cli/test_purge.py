"""`coterie purge`: erased text is in no file, and the log records the purge."""

from __future__ import annotations

import random

import pytest

from bench.lib.sample_events import sample_event, sample_projections
from coterie.base.paths import Paths
from coterie.eventstore import LogReader, NewJob, Purged, Store
from coterie.eventstore.sqlite.snapshots import write_snapshot
from tests.cli.conftest import Call, everything_in

ERASED = b"xylophone"


def files_with_erased_text(home: Paths) -> list[str]:
    return [name for name, content in everything_in(home.root).items() if ERASED in content]


def test_erased_text_is_in_no_file(sample_home: Paths, process: Call, call: Call) -> None:
    store = Store.open(sample_home.database, projections=sample_projections())
    store.append_blocking([], jobs=[NewJob("embed", "embed:other")])
    write_snapshot(store.reader.connections, store.projections, sample_home.periodic_snapshots / "1.snapshot")
    write_snapshot(store.reader.connections, store.projections, sample_home.rewind_snapshots / "2.snapshot")
    (sample_home.periodic_snapshots / "3.partial").write_bytes(ERASED)
    chance = random.Random(3)
    store.append_blocking([sample_event(chance, "room:a", number) for number in range(60, 90)])
    store.close()
    assert len(files_with_erased_text(sample_home)) == 4
    answer = process("purge", "room:b", "--yes", "--reason", "asked to")
    assert answer.code == 0, answer.err
    assert answer.out == "Erased 2 events of room:b; event 93 of the log records it.\n"
    assert files_with_erased_text(sample_home) == []
    reader = LogReader(sample_home.database)
    (event,) = reader.read("instance")
    assert event.payload == Purged(stream="room:b", events=2, first_seq=1, last_seq=2, reason="asked to")
    assert event.actor == "owner"
    reader.close()
    assert call("verify").code == 0


def test_a_range_is_erased(sample_home: Paths, call: Call) -> None:
    assert call("purge", "room:b", "--first", "2", "--last", "2", "--yes").code == 0
    content = sample_home.database.read_bytes()
    assert b"xylophone is at 1" in content
    assert b"xylophone is at 2" not in content
    assert call("verify").code == 0


def test_backups_and_copies_are_reported_and_removed_on_request(sample_home: Paths, call: Call) -> None:
    call("backup")
    (path,) = sample_home.backups.iterdir()
    call("restore", str(path), "--yes")
    answer = call("purge", "room:b", "--yes")
    assert answer.code == 0
    assert "2 backups and copies still hold them" in answer.err
    assert len(files_with_erased_text(sample_home)) == 1  # the backup holds it compressed
    assert path.exists()
    answer = call("purge", "room:a", "--yes", "--backups")
    assert answer.code == 0
    assert files_with_erased_text(sample_home) == []
    assert not path.exists()
    assert call("verify").code == 0


def test_a_purge_asks_for_confirmation(sample_home: Paths, process: Call) -> None:
    before = everything_in(sample_home.root)
    answer = process("purge", "room:b")
    assert answer.code == 1
    assert "Erase events 1 to 2 of room:b permanently?" in answer.out + answer.err
    assert everything_in(sample_home.root) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["room:none"], "There is no stream room:none."),
        (["room:b", "--first", "3"], "room:b has no events 3 to 2: its last is 2."),
        (["room:b", "--first", "2", "--last", "1"], "room:b has no events 2 to 1"),
        (["room:b", "--last", "9"], "room:b has no events 1 to 9: its last is 2."),
    ],
)
def test_a_missing_range_cannot_be_erased(sample_home: Paths, call: Call, arguments: list[str], message: str) -> None:
    before = everything_in(sample_home.root)
    answer = call("purge", *arguments, "--yes")
    assert answer.code == 10
    assert message in answer.err
    assert "nothing was erased" in answer.err
    assert everything_in(sample_home.root) == before


def test_a_purge_needs_the_server_to_be_stopped(sample_home: Paths, call: Call) -> None:
    store = Store.open(sample_home.database, projections=sample_projections())
    answer = call("purge", "room:b", "--yes")
    store.close()
    assert answer.code == 4
