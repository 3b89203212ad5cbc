"""Changes the configuration file the way a careful person would: comments and order stay, and a bad edit is undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coterie.base.errors import CoterieError


def edit_config(file: Path, changes: Mapping[tuple[str, ...], Any], check: Callable[[], object]) -> None:
    """Set each key (table, …, name), or with None take it out. If `check` then raises, the file is as it was."""
    import tomlkit
    from tomlkit.items import Table

    before = file.read_text(encoding="utf-8")
    document = tomlkit.parse(before)
    for (*tables, name), value in changes.items():
        here: Any = document
        for place, table in enumerate(tables):
            if table not in here:
                # Tables that only hold other tables need no header of their own.
                here[table] = tomlkit.table(is_super_table=place < len(tables) - 1)
            here = here[table]
        if value is None:
            here.pop(name, None)
        elif isinstance(here, Table) or here is document:
            here[name] = value
        else:
            here.update({name: value})
    file.write_text(tomlkit.dumps(document), encoding="utf-8")
    try:
        check()
    except CoterieError:
        file.write_text(before, encoding="utf-8")
        raise
