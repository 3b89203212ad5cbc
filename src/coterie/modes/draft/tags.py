"""Changes as tags: `<change><original>…</original><proposed>…</proposed><reason>…</reason></change>`. F5"""

from __future__ import annotations

import re

from coterie.modes.draft.blocks import BlockParser, Markers, strip_edge_newlines

FIELDS = ("original", "proposed", "reason")
_NEEDED = ("original", "proposed")
_SPACE = re.compile(r"\s+")


class TagParser(BlockParser):
    """Fields may come in any order, each once; only white space may stand between them."""

    opener = Markers("<change>")
    # A field that holds a block's own tags is one that was not closed.
    _closers = {name: Markers(f"</{name}>", "<change>", "</change>") for name in FIELDS}  # noqa: RUF012
    _between = Markers(*(f"<{name}>" for name in FIELDS), "<change>", "</change>")

    def _begin(self) -> None:
        self._fields: dict[str, str] = {}
        self._field = ""
        self._told: list[str] = []

    def _inside(self, room: int) -> bool:
        return self._in_field(room) if self._field else self._between_fields(room)

    def _in_field(self, room: int) -> bool:
        marks = self._closers[self._field]
        found = marks.first(self._rest, min(room, len(self._rest)))
        if found is None:
            sure = min(len(self._rest) - marks.unsure(self._rest), room)
            self._told.append(self._consume(sure))
            return False
        self._told.append(self._consume(found.start()))
        if found.group() == "<change>":
            self._spoil("nested")
        elif found.group() == "</change>":
            self._consume(len("</change>"))
            self._spoil("garbled")
        else:
            self._consume(found.end() - found.start())
            self._fields[self._field] = strip_edge_newlines("".join(self._told))
            self._field = ""
        return True

    def _between_fields(self, room: int) -> bool:
        blank = _SPACE.match(self._rest, 0, min(room, len(self._rest)))
        if blank:
            self._consume(blank.end())
            return True
        found = self._between.first(self._rest, min(room, len(self._rest)))
        if found is None or found.start():
            if self._between.could_begin(self._rest[:room]):
                return False
            self._spoil("garbled")
            return True
        mark = found.group()
        if mark == "<change>":
            self._spoil("nested")
            return True
        self._consume(len(mark))
        if mark == "</change>":
            if all(name in self._fields for name in _NEEDED):
                self._close(self._fields["original"], self._fields["proposed"], self._fields.get("reason", ""))
            else:
                self._spoil("garbled")
        elif mark[1:-1] in self._fields:
            self._spoil("garbled")
        else:
            self._field, self._told = mark[1:-1], []
        return True
