"""`coterie.pot`: all messages of the page, sorted by their files and without line numbers, which would often change."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polib

from tools.messages.extraction import Message, messages

ROOT = Path(__file__).parents[2]
LOCALE = ROOT / "src" / "coterie" / "surfaces" / "web" / "locale"
TEMPLATE = LOCALE / "coterie.pot"
_HEADER = "Texts of the web page of Coterie.\npython -m tools.messages writes this file."
_METADATA = {
    "Project-Id-Version": "Coterie",
    "MIME-Version": "1.0",
    "Content-Type": "text/plain; charset=utf-8",
    "Content-Transfer-Encoding": "8bit",
}
_WIDTH = 120


def catalogue(found: Iterable[Message]) -> polib.POFile:
    """Every message once, with all files that have it, in the order of the first of them."""
    places: dict[tuple[str | None, str], set[str]] = {}
    plurals: dict[tuple[str | None, str], str] = {}
    for one in found:
        key = (one.context, one.text)
        places.setdefault(key, set()).add(one.path)
        if one.plural is not None and plurals.setdefault(key, one.plural) != one.plural:
            raise ValueError(f"{one.text!r} has two plurals: {one.plural!r} and {plurals[key]!r}.")
    made = polib.POFile(wrapwidth=_WIDTH)
    made.header = _HEADER
    made.metadata = dict(_METADATA)
    for (context, text), paths in sorted(places.items(), key=lambda one: (min(one[1]), one[0][1], one[0][0] or "")):
        made.append(_entry(context, text, plurals.get((context, text)), sorted(paths)))
    return made


def _entry(context: str | None, text: str, plural: str | None, paths: list[str]) -> polib.POEntry:
    entry = polib.POEntry(msgid=text, msgctxt=context, occurrences=[(path, "") for path in paths])
    if plural is not None:
        entry.msgid_plural = plural
        entry.msgstr_plural = {0: "", 1: ""}
    if "%(" in text + (plural or ""):
        entry.flags.append("python-format")
    elif "{" in text and paths[0].endswith(".js"):
        entry.flags.append("python-brace-format")
    return entry


def template() -> str:
    """The text of `coterie.pot`."""
    return f"{catalogue(messages())}\n"


def update_translation(language: str, folder: Path = LOCALE) -> tuple[Path, int, int]:
    """Add new messages to the translation into a language, and mark those that are gone. What is translated stays."""
    path = folder / language / "LC_MESSAGES" / "coterie.po"
    made = polib.pofile(str(path), wrapwidth=_WIDTH) if path.is_file() else polib.POFile(wrapwidth=_WIDTH)
    if not path.is_file():
        made.metadata = {**_METADATA, "Language": language, "Plural-Forms": "nplurals=2; plural=(n != 1);"}
    made.merge(catalogue(messages()))
    path.parent.mkdir(parents=True, exist_ok=True)
    made.save(str(path))
    current = [entry for entry in made if not entry.obsolete]
    return path, sum(entry.translated() for entry in current), len(current)
