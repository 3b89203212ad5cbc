"""The texts of the page in other languages: message catalogues, and the functions that look texts up in them.

The English text is the id of a message, as with gettext. `python -m tools.messages` collects all of them into
`locale/coterie.pot`; a translation is `locale/<language>/LC_MESSAGES/coterie.po`, which is read as it is.

In templates, `_("…")` is a text and `{% trans %}…{% endtrans %}` is markup with text. Both are translated when they
are shown, into the language of the request; a text of this package that is written before that is marked with `N_`.
"""

from __future__ import annotations

import gettext as gnu_gettext
import io
import json
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import polib
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

DOMAIN = "coterie"
SOURCE_LANGUAGE = "en"
"""The language of the texts in the code, which needs no catalogue."""
_PLURAL_CYCLE = 200
"""The plural rules of all languages repeat every 100 numbers from 100 on, so that these represent all numbers."""
_LANGUAGE_RANGE = re.compile(r"^\s*([A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*)\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?)\s*)?$")
_MAX_RANGES = 20
_VALUE = re.compile(r"%\(\w+\)s")


@dataclass(frozen=True)
class LanguageCatalogue:
    """The translations of one language."""

    language: str
    translations: gnu_gettext.NullTranslations
    script_table: str = ""
    """For `messages.js`: JSON with the translated messages of scripts, and the plural form of each number below 200."""


_ENGLISH = LanguageCatalogue(SOURCE_LANGUAGE, gnu_gettext.NullTranslations())
_current: ContextVar[LanguageCatalogue] = ContextVar("catalogue", default=_ENGLISH)


def locale_folder() -> Traversable:
    """Where the catalogues are."""
    return files("coterie.surfaces.web").joinpath("locale")


@cache
def catalogues() -> Mapping[str, LanguageCatalogue]:
    """All languages that the page can be shown in, by code."""
    found = {SOURCE_LANGUAGE: _ENGLISH}
    for folder in locale_folder().iterdir():
        file = folder.joinpath("LC_MESSAGES", f"{DOMAIN}.po")
        if file.is_file():
            language = folder.name.replace("_", "-")
            found[language] = read_catalogue(language, file.read_text(encoding="utf-8"))
    return found


def read_catalogue(language: str, text: str) -> LanguageCatalogue:
    """A `.po` file. Messages that are not translated, or marked as fuzzy, stay English, and so do those that could not
    be filled in, because the translation has other values.
    """
    entries = polib.pofile(text)
    entries.metadata["Content-Type"] = "text/plain; charset=UTF-8"
    for entry in [one for one in entries.translated_entries() if not _can_be_filled_in(one)]:
        entries.remove(entry)
    translations = gnu_gettext.GNUTranslations(io.BytesIO(entries.to_binary()))
    table = {
        key(entry.msgid, entry.msgctxt): [entry.msgstr_plural[at] for at in sorted(entry.msgstr_plural)]
        if entry.msgid_plural
        else entry.msgstr
        for entry in entries.translated_entries()
        if any(path.endswith(".js") for path, _ in entry.occurrences)
    }
    forms = [translations.plural(number) for number in range(_PLURAL_CYCLE)]  # type: ignore[attr-defined]
    return LanguageCatalogue(
        language, translations, json.dumps({"messages": table, "forms": forms}, ensure_ascii=False)
    )


def _can_be_filled_in(entry: polib.POEntry) -> bool:
    wanted = entry.msgid + entry.msgid_plural
    values = set(_VALUE.findall(wanted))
    made = [entry.msgstr, *entry.msgstr_plural.values()]
    return all(
        set(_VALUE.findall(text)) <= values and ("%" in _VALUE.sub("", wanted) or "%" not in _VALUE.sub("", text))
        for text in made
    )


def key(text: str, context: str | None) -> str:
    """A message with its context, as one string; a `.mo` file and `messages.js` join them the same way."""
    return text if context is None else f"{context}\x04{text}"


# The language of a request


class LanguageMiddleware:
    """Selects the catalogue of the language that the browser asks for."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = catalogues()
        token = _current.set(found[accepted_language(Headers(scope=scope).get("accept-language", ""), found)])
        try:
            await self._app(scope, receive, send)
        finally:
            _current.reset(token)


def accepted_language(header: str, available: Mapping[str, object]) -> str:
    """The available language that an `Accept-Language` header prefers, else English; `de-AT` is served by `de`."""
    codes = {code.casefold(): code for code in available}
    matches = [_LANGUAGE_RANGE.match(part) for part in header.split(",")[:_MAX_RANGES]]
    ranges = [(float(match[2] or 1), match[1].casefold()) for match in matches if match]
    for quality, wanted in sorted(ranges, key=lambda one: -one[0]):
        code = codes.get(wanted) or codes.get(wanted.partition("-")[0])
        if quality > 0 and code:
            return code
    return SOURCE_LANGUAGE


def current_language() -> str:
    return _current.get().language


def script_messages() -> str:
    """The table of `messages.js` in the current language, as JSON; empty for English."""
    return _current.get().script_table


# Looking up. The values of `%(name)s` are inserted as they are; templates escape the result.


def N_(text: str) -> str:  # noqa: N802 - the name that gettext tools know
    """Marks a text that is translated later, where it is shown."""
    return text


def gettext(text: str, /, **values: object) -> str:
    """The text in the current language."""
    # The empty message holds the header of a catalogue.
    found = _current.get().translations.gettext(text) if text else text
    return found % values if values else found


def pgettext(context: str, text: str, /, **values: object) -> str:
    """The same for a text whose translation depends on where it is used."""
    found = _current.get().translations.pgettext(context, text)
    return found % values if values else found


def ngettext(one: str, many: str, count: int, /, **values: object) -> str:
    """The form for this number, which is also the value `count`."""
    found = _current.get().translations.ngettext(one, many, count)
    return found % {"count": count, **values}


def catalogue_gettext(text: str) -> str:
    """For `{% trans %}`, which inserts the values itself."""
    return _current.get().translations.gettext(text)


def catalogue_ngettext(one: str, many: str, count: int) -> str:
    return _current.get().translations.ngettext(one, many, count)


def catalogue_pgettext(context: str, text: str) -> str:
    return _current.get().translations.pgettext(context, text)


def catalogue_npgettext(context: str, one: str, many: str, count: int) -> str:
    return _current.get().translations.npgettext(context, one, many, count)
