"""Replies with changes in them, mangled and cut at random: does the stream parser keep its promises? F5

Per stream: the pieces are those of the uncut text; nothing visible is lost; a change comes only from a block that
an independent reading finds well formed.
"""

from __future__ import annotations

import random
import re
import time

from bench.lib.report import arguments, finish, log, progress
from coterie.modes.draft.edit_formats import (
    ChangeFormat,
    EditBlock,
    ReplyPart,
    SearchReplaceParser,
    TagParser,
    TextPart,
    join_text,
    parser_for,
)

_PARTS = (
    "<change>",
    "</change>",
    "<original>",
    "</original>",
    "<proposed>",
    "</proposed>",
    "<reason>",
    "</reason>",
    "<change><original>the old words</original><proposed>new ones</proposed><reason>why</reason></change>",
    "<change>\n<original>\none\n</original>\n<proposed>\ntwo\n</proposed>\n</change>",
    "<<<<<<< SEARCH\n",
    "\n=======\n",
    "\n>>>>>>> REPLACE",
    "<<<<<<< SEARCH\nthe old words\n=======\nnew ones\n>>>>>>> REPLACE why\n",
    "```xml\n",
    "```\n",
    "\n",
    "\r\n",
    " ",
    "<",
    "A sentence of prose. ",
    "größer, 語, 🦀 ",
)
_TAGGED = re.compile(
    r"<change>\s*(?:<(original|proposed|reason)>(?:(?!</?change>|</\1>).)*</\1>\s*){2,3}</change>", re.DOTALL
)
_SEARCHED = re.compile(r"<<<<<<< SEARCH\r?\n.*\n?=======\r?\n.*\n?>>>>>>> REPLACE[^\n]*", re.DOTALL)


def mangled(chance: random.Random) -> str:
    text = "".join(chance.choices(_PARTS, k=chance.randint(1, 12)))
    for _ in range(chance.choice((0, 0, 1, 3))):
        at = chance.randrange(len(text) + 1)
        text = (
            text[:at] + chance.choice(("", "<", ">", "/", "`", "\n", "x", "\u2028")) + text[at + chance.randint(0, 3) :]
        )
    return text


def cut(text: str, form: ChangeFormat, chance: random.Random) -> list[ReplyPart]:
    parser = parser_for(form)
    pieces: list[ReplyPart] = []
    at = 0
    while at < len(text):
        size = chance.choice((1, 1, 2, 3, 5, 8, 30))
        pieces += parser.feed(text[at : at + size])
        at += size
    return join_text([*pieces, *parser.end()])


def check(text: str, chance: random.Random) -> int:
    """Raises where a promise is broken; how many changes there were otherwise."""
    rows = 0
    forms: tuple[ChangeFormat, ChangeFormat] = ("tags", "search_replace")
    for form in forms:
        whole = parser_for(form)
        pieces = join_text([*whole.feed(text), *whole.end()])
        assert cut(text, form, chance) == pieces, text
        plain = TagParser() if form == "tags" else SearchReplaceParser()
        bare = [*plain.feed(text), *plain.end()]
        said = "".join(p.text if isinstance(p, TextPart) else p.raw if isinstance(p, EditBlock) else "" for p in bare)
        assert said == text, text
        for piece in pieces:
            if isinstance(piece, EditBlock):
                rows += 1
                well_formed = _TAGGED if form == "tags" else _SEARCHED
                assert well_formed.fullmatch(piece.raw), (text, piece)
                assert piece.original != piece.proposed, (text, piece)
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--streams", type=int, default=1_000_000)
    options = parser.parse_args()
    streams = min(options.streams, 20_000) if options.quick else options.streams
    chance = random.Random(8)
    started = time.perf_counter()
    rows = 0
    for number in range(streams):
        rows += check(mangled(chance), chance)
        if number % 1_000 == 999:
            progress(number + 1, streams, "streams")
    seconds = time.perf_counter() - started
    speed = {}
    for kilobytes in (100, 1_000):
        text = "A sentence of prose with a < in it. " * (kilobytes * 1_000 // 37)
        began = time.perf_counter()
        whole = TagParser()
        for at in range(0, len(text), 4):
            whole.feed(text[at : at + 4])
        whole.end()
        speed[str(kilobytes)] = round(len(text) / (time.perf_counter() - began) / 1e6, 2)
    log(f"{streams} streams in {seconds:.0f} s, {rows} changes in them; {speed} MB/s by length in kB")
    finish({"streams": streams, "failures": 0, "rows": rows, "seconds": round(seconds, 1), "mb_per_s": speed})


if __name__ == "__main__":
    main()
