"""The message catalogue is complete: it has every text of the page, and a page in another language shows no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polib
import pytest

from coterie.characters import starter_character
from coterie.memory.writer import NewMemory
from coterie.surfaces.web.server import _PAGES
from coterie.surfaces.web.shared import messages
from coterie.surfaces.web.shared.templates import HtmlRoute, template_environment
from tests.surfaces.web.conftest import Web
from tools.messages.catalogue import TEMPLATE, catalogue, template, update_translation
from tools.messages.extraction import NOT_TRANSLATED, WEB
from tools.messages.extraction import messages as all_messages
from tools.messages.scripts import calls, literals, wrapped

PSEUDO = "eo"
PLURALS = "nplurals=2; plural=(n != 1);"
_KEPT = re.compile(r"%\(\w+\)s|\{\w+\}|<[^>]*>|&\w+;|%%")
"""Parts of a message that a translation keeps."""


def pseudo(text: str) -> str:
    """The text with other letters, so that every text that was not translated can be recognised by its letters."""

    def changed(part: str) -> str:
        return "".join(chr(ord(sign) + 0xFEE0) if sign.isascii() and sign.isalpha() else sign for sign in part)

    pieces, at = [], 0
    for kept in _KEPT.finditer(text):
        pieces += [changed(text[at : kept.start()]), kept[0]]
        at = kept.end()
    return "".join([*pieces, changed(text[at:])])


def pseudo_catalogue() -> messages.LanguageCatalogue:
    entries = catalogue(all_messages())
    entries.metadata["Plural-Forms"] = PLURALS
    for entry in entries:
        if entry.msgid_plural:
            entry.msgstr_plural = {0: pseudo(entry.msgid), 1: pseudo(entry.msgid_plural)}
        else:
            entry.msgstr = pseudo(entry.msgid)
    return messages.read_catalogue(PSEUDO, str(entries))


class Texts(HTMLParser):
    """The texts of a page that people see or hear."""

    ATTRIBUTES = ("aria-label", "title", "placeholder", "alt", "data-said", "data-ask")
    SKIPPED = ("script", "style", "code", "pre", "kbd", "textarea", "time")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.SKIPPED:
            self._inside.append(tag)
        shown = [value for name, value in attrs if name in self.ATTRIBUTES and value]
        self.found += [value for value in shown if value not in ("title", "tags")]  # data-ask names a field

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside and data.strip():
            self.found.append(" ".join(data.split()))


def texts(html: str) -> list[str]:
    parser = Texts()
    parser.feed(html)
    return parser.found


def test_the_catalogue_is_up_to_date() -> None:
    """`.venv/bin/python -m tools.messages` writes it."""
    assert TEMPLATE.read_text(encoding="utf-8") == template()


# A page in another language


NAME = "Μάρα"
WORDS = "Το φως ανάβει το βράδυ"
HEADERS = {"Accept": "text/html", "Accept-Language": f"{PSEUDO}, en;q=0.5"}
NOT_PAGES = {
    "/pictures/{picture}": "a picture",
    "/characters/{character_id}/portrait": "a picture",
    "/characters/ready/{name}/portrait": "a picture",
    "/static/{of}/{path:path}": "a file",
    "/live": "events",
    "/overlay/{room}": "needs a token; its only texts are a title and a label",
    "/draft/threads/{thread}": "redirects to the document",
    "/styleguide": "for developers",
    "/crowd/{room}/what-if": "needs a recorded session",
    "/crowd/{room}/messages/{number}": "needs a recorded session",
    "/imports/{run_id}": "needs a folder of SillyTavern",
    "/desk/{chat}/processes/{process}": "needs a worker",
}
ALLOWED = (
    # What other packages report about the state of the system; see docs/page.md.
    r"(?:Pictures: )?Demo model is much weaker than .*, which the other roles use\.",
    # Names of programs, services, models and licences.
    r"Coterie|SillyTavern|Qwen 2\.5|Llama 3\.2|Gemma|Mistral(?: Nemo| Small)?|SmolLM2|Instruct|\d+B|OpenAI",
    r"Telegram|Discord|Matrix|htmx|literata|lucide|codemirror",
    r"Apache-2\.0|0BSD|OFL|ISC|MIT|Community License|Terms of Use|nomic-embed-text|script",
    # Units, files, addresses, and examples of what is written by programs.
    r"kB|MB|\S*/\S*|\S+\.(?:md|zip)|https?:\S*|123456:ABC…|MTIz…|@coterie:example\.org|shorter-intro|research|main",
    # Names of the parts of a prompt, of background tasks and of roles, as they are in the log.
    r"identity|scene|turns?|voice|activity of|feelings toward|weather|system|assistant|user",
    r"crowd (?:room|files)|kitchen-radio|late-shift|speedrun-lab|narrative|classifier|vision",
    r"creative|balanced|precise|Edit",
)
"""The only texts that may stay: patterns, with the reason of each group."""


async def populated(web: Web) -> dict[str, str]:
    """An instance whose data has no Latin letters."""
    await web.client.put("/you", json={"name": "Άννα", "pronouns": "αυτή", "persona": WORDS})
    fields = {"persona": WORDS, "backstory": WORDS, "traits": ["ήρεμη"], "voice_samples": [WORDS], "kickoff": WORDS}
    character = (await web.post("/characters", {"name": NAME, **fields}, status=201))["id"]
    await web.client.put(f"/characters/{character}", json={"name": NAME, **fields, "persona": f"{WORDS}\n{WORDS}"})
    opening = {"title": WORDS, "place": {"name": "το σπίτι"}, "weather": "βροχή", "facts": [WORDS], "greeting": WORDS}
    chat = (await web.post(f"/characters/{character}/kickoff", opening, status=201))["id"]
    web.script.replies = [WORDS]
    web.script.shapes["TurnAnalysis"] = "{}"
    said = await web.say(f"/chats/{chat}", WORDS)
    book = (await web.post("/lorebooks", {"name": WORDS}, status=201))["id"]
    entry = (await web.post(f"/lorebooks/{book}/entries", {"name": WORDS}, status=201))["entry"]
    await web.client.post("/you/personas", json={"name": NAME, "about": WORDS})
    await web.post("/backups", status=201)
    desk = (await web.post("/desk", {"character": character, "title": WORDS}, status=201))["id"]
    workspace = (await web.post("/draft/workspaces", {"name": WORDS}, status=201))["id"]
    await web.client.put(f"/draft/workspaces/{workspace}/documents/α.md", json={"text": f"# {WORDS}\n"})
    request = {"document": "α.md", "members": [{"bot": character}], "title": WORDS}
    thread = (await web.post(f"/draft/workspaces/{workspace}/threads", request, status=201))["id"]
    web.app.memory.add_many([NewMemory(WORDS, character, f"room:{chat}")])
    (memory,) = web.app.memory.page(owner=character)
    names = {"character_id": character, "chat": chat, "turn": said["turn"], "reply": said["reply"], "book": book}
    names |= {"entry": entry, "workspace": workspace, "path:path": "α.md", "room": "late-shift", "name": "matrix"}
    return {**names, "desk": desk, "memory": memory.id, "thread": thread}


def page_paths() -> list[str]:
    """The paths of all pages and fragments."""
    found = []
    for router in _PAGES:
        for route in router.routes:
            path = getattr(route, "path", "")
            is_page = isinstance(route, HtmlRoute) or "GET" in (getattr(route, "methods", None) or ())
            if is_page and path not in NOT_PAGES and path not in found:
                found.append(path)
    return found


QUERIES = {
    "/memory": ["", "?view=graph", "?view=timeline", "?q=ζ"],
    "/chats": ["", "?view=archived", "?view=deleted"],
    "/characters/{character_id}/kickoff/form": ["?empty=true"],
    "/chats/{chat}/turns": ["?before=99999"],
    "/memory/{memory_id}/edit": ["?room=room:{chat}"],
    "/memory/{memory_id}/row": ["?room=room:{chat}"],
    "/draft/workspaces/{workspace}/sidebar/{path:path}": ["?branch=main"],
    "/draft/workspaces/{workspace}/history/{path:path}": ["?branch=main"],
    "/search": ["", "?q=ζ", f"?q={WORDS.split()[1]}"],
    "/settings/models": ["", "?welcome"],
}


_PLACE = re.compile(r"\{([\w:]+)\}")


def _value(values: dict[str, str], place: re.Match[str]) -> str:
    return values[place[1]]


def addresses(names: dict[str, str]) -> Iterator[str]:
    for path in page_paths():
        values = dict(names)
        if path.startswith("/desk/"):
            values["chat"] = names["desk"]
        values["memory_id"] = names["memory"]
        if path.startswith("/crowd/{room}/people/"):
            values["name"] = "aunt_entropy"
        for query in QUERIES.get(path, [""]):
            yield _PLACE.sub(partial(_value, values), path + query)


async def data_of(web: Web) -> set[str]:
    """Texts of the rooms and characters that come with Coterie, and values of settings, which are data."""
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, str):
            found.add(" ".join(value.split()))
        elif isinstance(value, dict):
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                collect(inner)

    for address in ("/crowd", "/settings"):
        collect(await web.get(address))
    sandbox = await web.app.desk.sandbox.status()
    collect([sandbox.reason, sandbox.fix, sandbox.limits])
    room = await web.app.crowd.room("late-shift")
    collect([persona.model_dump() for persona in room.authored_personas])
    for one in await web.get("/characters/ready"):
        name = starter_character(one["name"]).name
        collect([one, name, name.split()[0]])
    return {one for one in found if re.search("[A-Za-z]{2}", one)}


async def test_no_text_of_a_page_in_another_language_is_english(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    names = await populated(web)
    data = sorted(await data_of(web), key=len, reverse=True)
    not_english = re.compile(rf"(?<!\w)(?:{'|'.join([*ALLOWED, *map(re.escape, data)])})(?!\w)")
    both = {messages.SOURCE_LANGUAGE: messages.catalogues()[messages.SOURCE_LANGUAGE], PSEUDO: pseudo_catalogue()}
    monkeypatch.setattr(messages, "catalogues", lambda: both)
    english: dict[str, list[str]] = {}
    for address in addresses(names):
        answer = await web.client.get(address, headers=HEADERS)
        assert answer.status_code == 200, (address, answer.text[:300])
        assert '<html lang="en"' not in answer.text
        html = answer.json() if answer.headers["content-type"] == "application/json" else {"page": answer.text}
        shown = [text for part in html.values() if isinstance(part, str) and "<" in part for text in texts(part)]
        if left := [text for text in shown if re.search("[A-Za-z]{2}", not_english.sub("", text))]:
            english[address] = left
    left = [f"{address}: {text}" for address, found in english.items() for text in found]
    assert not left, "\n".join(left)


async def test_the_language_follows_the_browser(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    async def page(language: str | None) -> str:
        header = {} if language is None else {"Accept-Language": language}
        return str((await web.client.get("/chats", headers={"Accept": "text/html", **header})).text)

    english = await page(None)
    assert '<html lang="en">' in english
    assert 'name="messages"' not in english
    assert {await page("en"), await page("de-AT, fr;q=0.8"), await page("*"), await page("; ,,q=x")} == {english}
    both = {messages.SOURCE_LANGUAGE: messages.catalogues()[messages.SOURCE_LANGUAGE], PSEUDO: pseudo_catalogue()}
    monkeypatch.setattr(messages, "catalogues", lambda: both)
    assert await page("en") == english
    other = await page(PSEUDO)
    assert f'<html lang="{PSEUDO}">' in other
    assert '<meta name="messages" content="{' in other
    assert messages.current_language() == messages.SOURCE_LANGUAGE, "it is for the request only"


def test_a_constant_in_a_template_is_shown_in_each_language(monkeypatch: pytest.MonkeyPatch) -> None:
    template = template_environment().from_string('{{ "start"|score_part }}')
    assert template.render() == "base score"
    monkeypatch.setattr("coterie.surfaces.web.shared.labels.gettext", pseudo)
    assert template.render() == pseudo("base score")


async def test_a_cached_turn_is_shown_in_each_language(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    _, chat = await web.begin()
    await web.say(chat, "Hello there.")

    async def turns(language: str) -> str:
        headers = {"Accept": "text/html", "Accept-Language": language}
        return str((await web.client.get(f"{chat}/turns?before=99999", headers=headers)).text)

    both = {messages.SOURCE_LANGUAGE: messages.catalogues()[messages.SOURCE_LANGUAGE], PSEUDO: pseudo_catalogue()}
    monkeypatch.setattr(messages, "catalogues", lambda: both)
    english, other = await turns("en"), await turns(PSEUDO)
    assert "Another reply" in english
    assert "Another reply" not in other
    assert pseudo("Another reply") in other
    assert await turns("en") == english


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", "en"),
        ("de", "de"),
        ("de-CH, en;q=0.5", "de"),
        ("en, de", "en"),
        ("en;q=0.3, de;q=0.9", "de"),
        ("pt-br", "pt-BR"),
        ("pt", "en"),
        ("de;q=0", "en"),
        ("fr, it, de;q=0.1", "de"),
        ("x" * 10_000, "en"),
        ("de;q=2, ;;, =", "en"),
    ],
)
def test_the_preferred_language_is_chosen(header: str, expected: str) -> None:
    assert messages.accepted_language(header, {"en": 1, "de": 1, "pt-BR": 1}) == expected


# A catalogue


CATALOGUE = """
msgid ""
msgstr ""
"Plural-Forms: nplurals=3; "
"plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);\\n"

msgid "Hello"
msgstr "<b>Ahoj</b>"

#, fuzzy
msgid "Cancel"
msgstr "wrong"

msgid "Restore %(file)s…"
msgstr "Obnovit %(soubor)s…"

msgid "Close"
msgstr "100 %"

msgctxt "date"
msgid "From"
msgstr "Od"

#: story/static/timeline.js
msgid "%(count)s new"
msgid_plural "%(count)s new"
msgstr[0] "%(count)s novy"
msgstr[1] "%(count)s nove"
msgstr[2] "%(count)s novych"

#: shared/static/forms.js
msgid "Saved."
msgstr "Hotovo."
"""


@pytest.fixture
def translated() -> Iterator[messages.LanguageCatalogue]:
    made = messages.read_catalogue("cs", CATALOGUE)
    token = messages._current.set(made)
    yield made
    messages._current.reset(token)


def test_a_translation_is_text_and_not_markup(translated: messages.LanguageCatalogue) -> None:
    show = template_environment().from_string
    assert show('{{ _("Hello") }}').render() == "&lt;b&gt;Ahoj&lt;/b&gt;"
    assert show("{% trans %}Hello{% endtrans %}").render() == "<b>Ahoj</b>"
    assert show("{% trans name %}{{ name }} is here{% endtrans %}").render(name="<i>") == "&lt;i&gt; is here"
    assert show('{{ _("%(name)s is here", name=name) }}').render(name="<i>") == "&lt;i&gt; is here"


def test_catalogues_are_found_by_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pt_BR" / "LC_MESSAGES").mkdir(parents=True)
    (tmp_path / "pt_BR" / "LC_MESSAGES" / "coterie.po").write_text(CATALOGUE, encoding="utf-8")
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(messages, "locale_folder", lambda: tmp_path)
    messages.catalogues.cache_clear()
    try:
        assert {code: one.language for code, one in messages.catalogues().items()} == {"en": "en", "pt-BR": "pt-BR"}
    finally:
        messages.catalogues.cache_clear()


def test_translations_with_other_values_are_not_used(translated: messages.LanguageCatalogue) -> None:
    assert messages.gettext("Restore %(file)s…", file="a.zip") == "Restore a.zip…"
    assert template_environment().from_string("{% trans %}Close{% endtrans %}").render() == "Close"


def test_missing_and_fuzzy_translations_are_english(translated: messages.LanguageCatalogue) -> None:
    assert messages.gettext("Cancel") == "Cancel"
    assert messages.gettext("Nothing of the kind") == "Nothing of the kind"
    assert messages.gettext("") == ""
    assert messages.gettext("From") == "From"
    assert messages.pgettext("date", "From") == "Od"
    assert messages.gettext("100 %") == "100 %"


def test_the_plural_form_is_that_of_the_language(translated: messages.LanguageCatalogue) -> None:
    def new(count: int) -> str:
        return messages.ngettext("%(count)s new", "%(count)s new", count)

    assert [new(count) for count in (1, 3, 5, 11, 22)] == ["1 novy", "3 nove", "5 novych", "11 novych", "22 nove"]
    assert messages.ngettext("%(count)s turn", "%(count)s turns", 1) == "1 turn"
    assert messages.ngettext("%(count)s turn", "%(count)s turns", 2) == "2 turns"


def test_scripts_get_only_their_own_messages(translated: messages.LanguageCatalogue) -> None:
    table = json.loads(translated.script_table)
    assert table["messages"] == {
        "%(count)s new": ["%(count)s novy", "%(count)s nove", "%(count)s novych"],
        "Saved.": "Hotovo.",
    }
    assert [table["forms"][count] for count in (1, 3, 5, 101, 103, 111)] == [0, 1, 2, 0, 1, 2]


def test_a_translation_is_begun_and_updated(tmp_path: Path) -> None:
    path, done, total = update_translation("cs", tmp_path)
    assert (done, path.name) == (0, "coterie.po")
    assert total == len(catalogue(all_messages()))
    text = path.read_text(encoding="utf-8").replace('msgid "Cancel"\nmsgstr ""', 'msgid "Cancel"\nmsgstr "Storno"')
    path.write_text(text + '\nmsgid "Gone since"\nmsgstr "Pryc"\n', encoding="utf-8")
    assert update_translation("cs", tmp_path)[1:] == (1, total)
    again = polib.pofile(str(path))
    assert [entry.msgid for entry in again.obsolete_entries()] == ["Gone since"]
    assert messages.read_catalogue("cs", str(again)).translations.gettext("Cancel") == "Storno"


# The texts in templates and scripts


def test_values_of_a_message_are_the_same_in_its_plural() -> None:
    for message in all_messages():
        names = [set(_KEPT.findall(text)) for text in (message.text, message.plural or message.text)]
        assert names[0] == names[1], message


_SHOWN = re.compile(
    r"(?:\btextContent|\btitle|\bariaLabel|\bplaceholder)\s*[=:]\s*$|\baria-label\"[,:]\s*$"
    r"|(?<![\w.])(?:toast|new Option|new Error|new ApiError|showList|editInPlace)\($"
)
"""What comes before a text that is shown, whatever its letters are."""
_NOT_TEXT = re.compile(
    r"[a-z0-9_.:+/ -]*|[A-Z]{2,}|[A-Z][A-Za-z]+(?:-[A-Z][A-Za-z]+)*|[#.\[/?&@].*|https?:.*"
    r"|(?:input|button|dialog|form|pre)[\[, ].*|translateY\(.*",
    re.S,
)
"""Names of classes, elements, events and headers, selectors, and addresses."""


def test_texts_in_scripts_are_looked_up() -> None:
    """Every literal that is shown, or that reads like a text, is an argument of `t` or `plural`."""
    missing = []
    for path in sorted(WEB.rglob("*.js")):
        name = path.relative_to(WEB).as_posix()
        if "vendor" in path.parts or name in (*NOT_TRANSLATED, "shared/static/messages.js", "codemirror.entry.js"):
            continue
        code = path.read_text(encoding="utf-8")
        found = wrapped(code)
        for literal in literals(code):
            before = code[: literal.start].rsplit("\n", 1)[-1]
            text = re.sub(r"<[^>]*>|\0|\s+", " ", literal.text).strip()
            is_text = _SHOWN.search(before) or (" " in text and not _NOT_TEXT.fullmatch(text))
            if (
                literal.start not in found
                and is_text
                and re.search(r"(?<![.\w])[A-Za-z]{2}", text)
                and "matchMedia" not in before
            ):
                missing.append(f"{name}:{literal.line}: {text}")
    assert missing == []


def test_scripts_import_what_looks_texts_up() -> None:
    for path in WEB.rglob("*.js"):
        code = path.read_text(encoding="utf-8")
        if "vendor" not in path.parts and path.name not in ("messages.js", "codemirror.entry.js"):
            imported = re.findall(r'^import \{ ([^}]*) \} from "[./a-z]*messages\.js";$', code, re.M)
            used = sorted({call.function for call in calls(code)})
            assert [", ".join(used)] == imported if used else imported == [], path.name


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('toast(t("Saved."))', [("t", ("Saved.",))]),
        ('plural("{count} turn", "{count} turns", n)', [("plural", ("{count} turn", "{count} turns"))]),
        ('`<b>${t("A")}</b>`', [("t", ("A",))]),
        ('x.replace(/["\']t\\(/g, ""); t("B")', [("t", ("B",))]),
        ('// t("C")\nt("D")', [("t", ("D",))]),
        ("t(name)", [("t", (None,))]),
        ("t(`E`)", [("t", (None,))]),
        ('"t(" + set("F") + about("G")', []),
    ],
)
def test_messages_of_scripts_are_found(code: str, found: list[tuple[str, tuple[str | None, ...]]]) -> None:
    assert [(call.function, call.texts) for call in calls(code)] == found
