"""A page in another language: its scripts show the translations too, with the plural forms of the language."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from coterie.surfaces.web.shared import messages
from tests.e2e.conftest import TIMEOUT_MS, Site

CATALOGUE = """
msgid ""
msgstr ""
"Plural-Forms: nplurals=3; "
"plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2);\\n"

#: shared/templates/layout.html
msgid "Settings"
msgstr "Nastavení"

#: settings/static/settings.js
msgid "Nothing was changed."
msgstr "Nic se <nezměnilo>."

#: settings/static/settings.js
msgid "{count} found"
msgid_plural "{count} found"
msgstr[0] "{count} nalezen"
msgstr[1] "{count} nalezeny"
msgstr[2] "{count} nalezeno"

#: shared/static/palette.js
msgid "Search every chat for “{words}”"
msgstr "Hledat „{words}“ ve všech chatech"
"""


@pytest.fixture
def czech(browser: Browser, site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    found = {**messages.catalogues(), "cs": messages.read_catalogue("cs", CATALOGUE)}
    monkeypatch.setattr(messages, "catalogues", lambda: found)
    site.ask("PUT", "/you", {"name": "Ana"})
    context = browser.new_context(base_url=site.address, locale="cs-CZ")
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def test_scripts_show_the_translations(czech: Page) -> None:
    czech.goto("/settings")
    assert czech.locator("html").get_attribute("lang") == "cs"
    expect(czech.get_by_role("heading", name="Nastavení", exact=True)).to_be_visible()
    shown = czech.evaluate(
        """async () => {
          const url = document.querySelector('script[src$="shared/app.js"]').src.replace("app.js", "messages.js");
          const { t, plural } = await import(url);
          const found = [1, 2, 5, 11, 101, 103, 1005].map((count) => plural("{count} found", "{count} found", count));
          return [t("Nothing was changed."), t("Not translated {name}", { name: "<b>" }), ...found];
        }"""
    )
    assert shown[:2] == ["Nic se <nezměnilo>.", "Not translated <b>"]
    assert shown[2:] == [
        *("1 nalezen", "2 nalezeny", "5 nalezeno", "11 nalezeno"),
        *("101 nalezen", "103 nalezeny", "1005 nalezeno"),
    ]
    czech.locator("#settings-search").fill("backup")
    expect(czech.locator("#settings-found")).to_contain_text("nalezen")
    czech.keyboard.press("Control+k")
    czech.locator("#palette input").fill("maják")
    expect(czech.locator("#palette-list")).to_contain_text("Hledat „maják“ ve všech chatech")


def test_a_page_in_english_has_no_table(site: Site, browser: Browser) -> None:
    site.ask("PUT", "/you", {"name": "Ana"})
    context = browser.new_context(base_url=site.address, locale="en-US")
    page = context.new_page()
    page.goto("/settings")
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("meta[name=messages]").count() == 0
    page.locator("#settings-search").fill("backup")
    expect(page.locator("#settings-found")).to_contain_text("found")
    context.close()
