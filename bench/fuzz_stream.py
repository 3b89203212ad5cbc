"""Fuzz the parser of streamed replies with mangled text, cut at random positions.

Checked per stream: the parts are those of the whole text; no text is lost; an edit comes only from a block that a
regular expression accepts as well formed.
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
_SEARCH_REPLACE = re.compile(r"<<<<<<< SEARCH\r?\n.*\n?=======\r?\n.*\n?>>>>>>> REPLACE[^\n]*", re.DOTALL)


def mangle(rng: random.Random) -> str:
    text = "".join(rng.choices(_PARTS, k=rng.randint(1, 12)))
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(("", "<", ">", "/", "`", "\n", "x", "\u2028")) + text[at + rng.randint(0, 3) :]
    return text


def parse_in_chunks(text: str, change_format: ChangeFormat, rng: random.Random) -> list[ReplyPart]:
    parser = parser_for(change_format)
    parts: list[ReplyPart] = []
    at = 0
    while at < len(text):
        size = rng.choice((1, 1, 2, 3, 5, 8, 30))
        parts += parser.feed(text[at : at + size])
        at += size
    return join_text([*parts, *parser.end()])


def check(text: str, rng: random.Random) -> int:
    """Check one reply in all formats. Returns the number of its edits."""
    edits = 0
    formats: tuple[ChangeFormat, ChangeFormat] = ("tags", "search_replace")
    for change_format in formats:
        whole = parser_for(change_format)
        parts = join_text([*whole.feed(text), *whole.end()])
        assert parse_in_chunks(text, change_format, rng) == parts, text
        raw_parser = TagParser() if change_format == "tags" else SearchReplaceParser()
        assert "".join(map(_raw, [*raw_parser.feed(text), *raw_parser.end()])) == text, text
        for part in parts:
            if isinstance(part, EditBlock):
                edits += 1
                well_formed = _TAGGED if change_format == "tags" else _SEARCH_REPLACE
                assert well_formed.fullmatch(part.raw), (text, part)
                assert part.original != part.proposed, (text, part)
    return edits


def _raw(part: ReplyPart) -> str:
    return part.text if isinstance(part, TextPart) else part.raw if isinstance(part, EditBlock) else ""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--streams", type=int, default=1_000_000)
    options = parser.parse_args()
    streams = min(options.streams, 20_000) if options.quick else options.streams
    rng = random.Random(8)
    started = time.perf_counter()
    edits = 0
    for number in range(streams):
        edits += check(mangle(rng), rng)
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
    log(f"{streams} streams in {seconds:.0f} s, {edits} edits in them; {speed} MB/s by length in kB")
    finish({"streams": streams, "failures": 0, "rows": edits, "seconds": round(seconds, 1), "mb_per_s": speed})


if __name__ == "__main__":
    main()
