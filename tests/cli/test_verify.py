from __future__ import annotations

from bench.lib.sample_events import sample_projections
from coterie.base.paths import Paths
from coterie.eventstore import Store
from tests.cli.conftest import Call, everything_in


def tamper(home: Paths, statement: str) -> None:
    """Change a table of a projection without an event and without a trace in its journal."""
    store = Store.open(home.database, projections=sample_projections())
    store.transact(lambda rows: rows.run(statement))
    store.close()


def test_an_intact_database_is_clean(sample_home: Paths, process: Call) -> None:
    answer = process("verify")
    assert (answer.code, answer.out) == (0, "Clean: 62 events, 3 projections equal to a replay of the log.\n")


def test_verify_changes_nothing(sample_home: Paths, call: Call) -> None:
    before = everything_in(sample_home.root)
    assert call("verify").code == 0
    assert everything_in(sample_home.root) == before


def test_verify_works_while_a_server_runs(sample_home: Paths, call: Call) -> None:
    store = Store.open(sample_home.database, projections=sample_projections())
    assert call("verify").code == 0
    store.close()


def test_a_changed_projection_is_reported_and_repaired(sample_home: Paths, process: Call, call: Call) -> None:
    tamper(sample_home, "UPDATE sample_edge SET affinity = 99")
    answer = process("verify")
    assert answer.code == 7
    assert "The projection sample_edges differs from a replay of the log." in answer.err
    assert "coterie verify --repair" in answer.err
    assert call("verify", "--repair").code == 0
    assert call("verify").code == 0


def test_repair_needs_the_server_to_be_stopped(sample_home: Paths, call: Call) -> None:
    tamper(sample_home, "DELETE FROM sample_turn")
    store = Store.open(sample_home.database, projections=sample_projections())
    answer = call("verify", "--repair")
    store.close()
    assert answer.code == 4
    assert "Another Coterie" in answer.err


def test_a_gap_in_the_log_cannot_be_repaired(sample_home: Paths, call: Call) -> None:
    tamper(sample_home, "DELETE FROM log WHERE id = 30")
    for arguments in (["verify"], ["verify", "--repair"]):
        answer = call(*arguments)
        assert answer.code == 7
        assert "room:a jumps from 29 to 31" in answer.err
        assert "coterie restore" in answer.err


def test_a_damaged_page_is_reported(sample_home: Paths, call: Call) -> None:
    data = bytearray(sample_home.database.read_bytes())
    for page in range(4, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xee" * 200
    sample_home.database.write_bytes(data)
    answer = call("verify")
    assert answer.code == 7
    assert "damaged" in answer.err
