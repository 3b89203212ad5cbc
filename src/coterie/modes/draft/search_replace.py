"""Changes as search and replace between conflict marks, which some models write far better than tags. F5

<<<<<<< SEARCH
what stands there
=======
what shall stand there
>>>>>>> REPLACE and, on the same line, why
"""

from __future__ import annotations

from coterie.modes.draft.blocks import BlockParser, Markers

_SEARCH, _DIVIDE, _REPLACE = "<<<<<<< SEARCH\n", "\n=======\n", "\n>>>>>>> REPLACE"


class SearchReplaceParser(BlockParser):
    """Each mark stands on a line of its own. The line break that ends a mark begins what comes after it."""

    opener = Markers(_SEARCH, _SEARCH.replace("\n", "\r\n"))
    _in_original = Markers(_DIVIDE, _DIVIDE[:-1] + "\r\n", "\n" + _SEARCH, _REPLACE)
    _in_proposed = Markers(_REPLACE, "\n" + _SEARCH)
    _in_reason = Markers("\n")

    def _begin(self) -> None:
        self._give_back(1)
        self._fields: list[str] = []
        self._told: list[str] = []

    def _inside(self, room: int) -> bool:
        marks = (self._in_original, self._in_proposed, self._in_reason)[len(self._fields)]
        found = marks.first(self._rest, min(room, len(self._rest)))
        if found is None:
            sure = min(len(self._rest) - marks.unsure(self._rest), room)
            self._told.append(self._consume(sure))
            return False
        self._told.append(self._consume(found.start()))
        mark = found.group()
        if mark.endswith((_SEARCH, _SEARCH[:-1])):
            self._consume(1)
            self._spoil("nested")
            return True
        if mark == _REPLACE and len(self._fields) == 0:
            self._consume(len(mark))
            self._spoil("garbled")
            return True
        if mark != "\n":
            self._consume(len(mark))
            if mark != _REPLACE:
                self._give_back(1)
        # The line break that ends a field belongs to the mark after it.
        self._fields.append("".join(self._told).removeprefix("\n").removesuffix("\r"))
        self._told = []
        if len(self._fields) == 3:
            self._close(*self._fields)
        return True

    def _finish_at_end(self) -> None:
        """The reason may be the last line of the reply."""
        if len(self._fields) == 2:
            reason = "".join(self._told) + self._consume(len(self._rest))
            self._close(self._fields[0], self._fields[1], reason)

    def _give_back(self, length: int) -> None:
        last = self._raw[-1]
        self._raw[-1], self._rest = last[:-length], last[-length:] + self._rest
        self._length -= length
