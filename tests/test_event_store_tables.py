"""The event store's own tables are queried inside it only."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from coterie.eventstore import Store

PACKAGE = Path(__file__).parents[1] / "src" / "coterie"
OWNER = PACKAGE / "eventstore"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    store = Store.open(tmp_path_factory.mktemp("schema") / "coterie.db")
    try:
        return {name for (name,) in store.query("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')")}
    finally:
        store.close()


def tables_in_sql(source: str, tables: set[str]) -> list[tuple[int, str]]:
    """Line and table of every mention of one of the tables in a string of the source that reads like SQL."""
    mention = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|EXISTS)\s+({'|'.join(sorted(tables))})\b")
    return [
        (node.lineno, found)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for found in mention.findall(node.value)
    ]


@pytest.mark.parametrize(
    "statement",
    ['"SELECT id FROM event"', 'f"SELECT {c} FROM x JOIN job ON {d}"', '"""UPDATE\n  job SET state = 1"""'],
)
def test_sql_on_these_tables_is_found(tables: set[str], statement: str) -> None:
    assert tables_in_sql(statement, tables)


def test_other_tables_are_left_alone(tables: set[str]) -> None:
    assert {"event", "job", "event_kind", "schedule", "migration"} <= tables
    assert not tables_in_sql('"SELECT event FROM memory_event JOIN desk_schedule"', tables)


def test_only_the_event_store_queries_its_tables(tables: set[str]) -> None:
    leaks = {
        str(path.relative_to(PACKAGE)): found
        for path in PACKAGE.rglob("*.py")
        if not path.is_relative_to(OWNER) and (found := tables_in_sql(path.read_text(encoding="utf-8"), tables))
    }
    assert not leaks, "give the event store's reader a method for it"
