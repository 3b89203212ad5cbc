"""Every page with data in it, in each size and theme: no accessibility issue, nothing wider than the screen, and
nothing that covers a button or a heading.

`COTERIE_PAGE_PICTURES=FOLDER` keeps a picture of each, to look at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.axe import serious
from tests.e2e.browser import Theme, window
from tests.e2e.conftest import Site
from tests.e2e.desk_script import DeskScript
from tests.e2e.screenshots_home import prepare

pytestmark = pytest.mark.timeout(900)
SIZES = ((1440, 900), (820, 1100), (390, 844))
COVERED = """() => {
  const box = (e) => {  // a heading that is too narrow for its text still shows all of it
    const range = document.createRange();
    range.selectNodeContents(e);
    return (e.matches("h1") ? range : e).getBoundingClientRect();
  };
  const seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && box(e).width > 1 &&
    getComputedStyle(e).position !== "absolute" && !e.closest("svg, .cm-editor, .row-link");
  const places = ["a", "button", "input", "select", "textarea", "h1"].flatMap(
    (name) => [...document.querySelectorAll(`.page ${name}`)].filter(seen));
  const found = [];
  for (let i = 0; i < places.length; i++)
    for (let j = i + 1; j < places.length; j++) {
      const [a, b] = [places[i], places[j]];
      if (a.contains(b) || b.contains(a)) continue;
      const [r, s] = [box(a), box(b)];
      const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
      const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
      if (wide > 3 && high > 3) found.push(`${a.outerHTML.slice(0, 80)} and ${b.outerHTML.slice(0, 80)}`);
    }
  return found;
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("every") / "home", script=DeskScript())
    yield running
    running.close()


@pytest.fixture(scope="module")
def pages(site: Site) -> dict[str, str]:
    assert isinstance(site.script, DeskScript)
    character = prepare(site, site.script)
    chat = f"/chats/{site.ask('GET', '/chats')[0]['id']}"
    reply = site.ask("GET", f"{chat}/turns")["turns"][-1]["id"]
    site.ask("POST", "/lorebooks", {"name": "The island"})
    return {
        "home": "/",
        "stories": "/chats",
        "chat": chat,
        "prompt": f"{chat}/prompt/{reply}",
        "characters": "/characters",
        "character": character,
        "edit": f"{character}/edit",
        "new": "/characters/new",
        "opening": f"{character}/kickoff",
        "lorebooks": "/lorebooks",
        "personas": "/personas",
        "imports": "/imports",
        "memory": "/memory",
        "links": "/memory?view=graph",
        "settings": "/settings",
        "models": "/settings/models",
        "welcome": "/settings/models?welcome",
        "status": "/ops",
        "search": "/search?q=lamp",
        "desks": "/desk",
        "desk": f"/desk/{site.ask('GET', '/desk')[0]['id']}",
        "drafts": "/draft",
        "inbox": "/draft/inbox",
        "crowd": "/crowd",
        "room": "/crowd/late-shift",
        "about": "/about",
        "missing": "/nothing-here",
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_page_can_be_read_and_used(
    browser: Browser, site: Site, pages: dict[str, str], width: int, height: int, theme: Theme
) -> None:
    context = window(browser, site.address, width, height, theme)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    found: dict[str, object] = {}
    for name, path in pages.items():
        page.goto(path)
        page.wait_for_timeout(200)
        if folder := os.environ.get("COTERIE_PAGE_PICTURES"):
            page.screenshot(path=Path(folder) / f"{name}-{width}-{theme}.png", animations="disabled")
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        problems = [*serious(page), *page.evaluate(COVERED), *([f"{wider} px too wide"] if wider > 0 else [])]
        if problems:
            found[name] = problems
    context.close()
    assert found == {}
    assert errors == []
