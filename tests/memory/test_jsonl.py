"""M7 and M8: export and import as JSON Lines, browsing, and use as a library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.memory import Memory
from coterie.memory.errors import BadImport


def test_m8_export_and_import_keep_everything(memory: Memory, tmp_path: Path) -> None:
    old = memory.add("Ana lives in Paris", owner="mara", type="fact", sources=("t1",), about=("Ana",), private=True)
    new = memory.add(
        "Ana lives in Oslo", owner="mara", type="fact", sources=("t2",), witnesses=("mara", "Ana"), significance=2
    )
    memory.supersede(old, new)
    memory.pin(new)
    file = tmp_path / "out.jsonl"
    assert memory.export_jsonl(file, owner="mara") == 2
    with Memory(tmp_path / "other.db") as other:
        assert other.import_jsonl(file) == 2
        assert other.import_jsonl(file) == 0
        for memory_id in (old, new):
            exported, imported = memory.get(memory_id), other.get(memory_id)
            for name in (
                "text",
                "type",
                "sources",
                "about",
                "private",
                "witnesses",
                "significance",
                "superseded_by",
                "pinned",
            ):
                assert getattr(exported, name) == getattr(imported, name), name
        again = tmp_path / "again.jsonl"
        other.export_jsonl(again, owner="mara")
        first, second = ([json.loads(line) for line in path.read_text().splitlines()] for path in (file, again))
        assert [{**row, "made": ""} for row in first] == [{**row, "made": ""} for row in second]


def test_m8_import_for_another_owner_and_room(memory: Memory, tmp_path: Path) -> None:
    memory.add("the boat is blue", owner="mara")
    file = tmp_path / "out.jsonl"
    memory.export_jsonl(file)
    with Memory(tmp_path / "other.db") as other:
        assert other.import_jsonl(file, owner="teo", room="room:9") == 1
        (record,) = other.browse()
        assert (record.owner, record.room) == ("teo", "room:9")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "Line 2 is not JSON"),
        ("[1]", "Line 2 is not a memory"),
        ('{"owner": "a", "room": "r"}', "Line 2 is not a memory: it has no 'text'"),
        ('{"text": "x", "owner": "a", "room": "r", "type": "rumour"}', "rumour"),
        ('{"format": "mem0", "version": 1}', "Line 2 has format mem0"),
    ],
)
def test_m8_an_invalid_line_is_named_and_nothing_is_stored(
    memory: Memory, tmp_path: Path, line: str, message: str
) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text('{"text": "fine", "owner": "a", "room": "r"}\n' + line + "\n")
    with pytest.raises(BadImport, match=message.replace("[", r"\[")):
        memory.import_jsonl(file)
    assert memory.count() == 0


@settings(max_examples=15)
@given(st.lists(st.text(min_size=1, max_size=30).filter(lambda text: bool(text.replace("\0", "").strip())), max_size=6))
def test_m8_law_export_and_import_round_trip(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("law")
    with Memory(folder / "a.db") as source, Memory(folder / "b.db") as other:
        for text in texts:
            source.add(text)
        source.export_jsonl(folder / "out.jsonl")
        other.import_jsonl(folder / "out.jsonl")
        assert {(r.id, r.text) for r in source.browse()} == {(r.id, r.text) for r in other.browse()}


def test_m8_the_library_works_in_a_plain_script(tmp_path: Path) -> None:
    script = """
import sys
from coterie.memory import Memory
with Memory(sys.argv[1]) as memory:
    kept = memory.add("Ana is allergic to walnuts", speaker="Ana")
    memory.add("Ben plays the cello", speaker="Ben")
    print(memory.recall("what must Ana not eat?")[0].text)
    memory.forget(kept)
    print([each.text for each in memory.recall("what must Ana not eat?")])
    print([name for name in sys.modules if name in ("fastapi", "typer", "uvicorn", "wordllama")])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "m.db")], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["Ana is allergic to walnuts", "['Ben plays the cello']", "[]"]


def test_m7_browse_by_owner_type_room_and_time(memory: Memory) -> None:
    from datetime import UTC, datetime

    memory.add("the boat is blue", owner="mara", room="room:1", type="fact", happened=datetime(2025, 5, 1, tzinfo=UTC))
    memory.add("the boat is red", owner="teo", room="room:2", happened=datetime(2025, 7, 1, tzinfo=UTC))
    assert [r.owner for r in memory.browse(owner="mara")] == ["mara"]
    assert [r.owner for r in memory.browse(room="room:2")] == ["teo"]
    assert [r.owner for r in memory.browse(kind="fact")] == ["mara"]
    assert [r.owner for r in memory.browse(since=datetime(2025, 6, 1, tzinfo=UTC))] == ["teo"]
    assert [r.owner for r in memory.browse(until=datetime(2025, 6, 1, tzinfo=UTC))] == ["mara"]
