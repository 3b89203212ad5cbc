"""The bulletin: what a character should know now when it talks with somebody, as it was last written. D8"""

from __future__ import annotations

from coterie.kernel import Event, Rows, Store, View, on
from coterie.modes.desk.events import BulletinWritten


class BulletinBoard(View):
    name = "desk_bulletins"
    schema = """
        CREATE TABLE desk_bulletin(character TEXT, person TEXT, text TEXT NOT NULL, upto INTEGER NOT NULL,
            PRIMARY KEY(character, person)) WITHOUT ROWID;
    """

    @on(BulletinWritten)
    def written(self, rows: Rows, event: Event[BulletinWritten]) -> None:
        it = event.payload
        told = (it.character, it.person, it.text, it.upto)
        rows.run("INSERT OR REPLACE INTO desk_bulletin VALUES (?, ?, ?, ?)", told)


class Bulletins:
    def __init__(self, store: Store) -> None:
        self._store = store

    def text(self, character: str, person: str) -> str:
        sql = "SELECT text FROM desk_bulletin WHERE character = ? AND person = ?"
        rows = self._store.query(sql, (character, person))
        return str(rows[0][0]) if rows else ""

    def upto(self, character: str, person: str) -> int:
        """The last change of its memory that the bulletin knows of."""
        sql = "SELECT upto FROM desk_bulletin WHERE character = ? AND person = ?"
        rows = self._store.query(sql, (character, person))
        return int(rows[0][0]) if rows else 0
