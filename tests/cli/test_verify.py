from __future__ import annotations

from bench.lib.sample_events import sample_projections
from coterie.base.paths import Paths
from coterie.eventstore import Store
from tests.cli.conftest import Call, everything_in


def tamper(home: Paths, statement: str) -> None:
    """Change a view's table behind the log's back, leaving no trace in its journal."""
    store = Store.open(home.database, projections=sample_projections())
    store.transact(lambda rows: rows.run(statement))
    store.close()


def test_a_clean_house(lived_in: Paths, process: Call) -> None:
    answer = process("verify")
    assert (answer.code, answer.out) == (0, "Clean: 62 events, 3 projections equal to a replay of the log.\n")


def test_it_changes_nothing(lived_in: Paths, call: Call) -> None:
    before = everything_in(lived_in.root)
    assert call("verify").code == 0
    assert everything_in(lived_in.root) == before


def test_it_works_while_somebody_owns_the_file(lived_in: Paths, call: Call) -> None:
    store = Store.open(lived_in.database, projections=sample_projections())
    assert call("verify").code == 0
    store.close()


def test_a_tampered_view_is_told_and_repaired(lived_in: Paths, process: Call, call: Call) -> None:
    tamper(lived_in, "UPDATE sample_edge SET affinity = 99")
    answer = process("verify")
    assert answer.code == 7
    assert "The projection sample_edges differs from a replay of the log." in answer.err
    assert "coterie verify --repair" in answer.err
    assert call("verify", "--repair").code == 0
    assert call("verify").code == 0


def test_repair_needs_the_file_to_itself(lived_in: Paths, call: Call) -> None:
    tamper(lived_in, "DELETE FROM sample_turn")
    store = Store.open(lived_in.database, projections=sample_projections())
    answer = call("verify", "--repair")
    store.close()
    assert answer.code == 4
    assert "Another Coterie" in answer.err


def test_a_hole_in_the_log_is_not_repaired_away(lived_in: Paths, call: Call) -> None:
    tamper(lived_in, "DELETE FROM event WHERE id = 30")
    for arguments in (["verify"], ["verify", "--repair"]):
        answer = call(*arguments)
        assert answer.code == 7
        assert "room:a jumps from 29 to 31" in answer.err
        assert "coterie restore" in answer.err


def test_a_damaged_page_is_told(lived_in: Paths, call: Call) -> None:
    data = bytearray(lived_in.database.read_bytes())
    for page in range(4, len(data) // 4096):
        data[page * 4096 : page * 4096 + 200] = b"\xee" * 200
    lived_in.database.write_bytes(data)
    answer = call("verify")
    assert answer.code == 7
    assert "damaged" in answer.err
