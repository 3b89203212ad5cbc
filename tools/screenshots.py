"""Take the screenshots of the documentation: `python -m tools.screenshots`.

The pages show the golden instance of the tests with some recent content, on a real server with a scripted model.
"""

from __future__ import annotations

import io
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tests.e2e.browser import Theme, find_chromium
from tests.e2e.conftest import TIMEOUT_MS, Site
from tests.e2e.desk_script import DeskScript
from tests.e2e.draft_document import change
from tests.golden.test_instance import EXPECTED, write_instance

FOLDER = Path(__file__).parents[1] / "docs" / "screenshots"
MAX_BYTES = 150_000
HEIGHT_BY_WIDTH = {1440: 900, 820: 1100, 390: 844}


@dataclass(frozen=True)
class Picture:
    """A page, what is clicked on it in this order, and what must be visible at the end, as Playwright selectors."""

    name: str
    path: str
    """With the names that `add_content` returns in braces."""
    width: int = 1440
    theme: Theme = "light"
    clicks: tuple[str, ...] = ()
    shows: str = "main"


LIVE = "[data-state=live]"
CROWD = "/crowd/late-shift"
STREAM = "left-door.toml"
MEMBERS = "[role=tab]:has-text('Members')"
PICTURES = (
    Picture("home", "/"),
    Picture("activity", "/characters/{maren}", clicks=("[role=tab]:has-text('Activity')",)),
    Picture("chat", "{chat}", shows=LIVE),
    Picture("chat", "{chat}", theme="dark", shows=LIVE),
    Picture("chat-details", "{chat}", clicks=("[data-toggles='#drawer']",), shows="#drawer .memory"),
    Picture("characters", "/characters"),
    Picture("character", "/characters/{maren}", width=820, theme="dark"),
    Picture("opening", "/characters/{maren}/kickoff"),
    Picture("prompt", "{chat}/prompt/{reply}"),
    Picture("memory", "/memory?owner={maren}"),
    Picture("memory-links", "/memory?owner={maren}&view=graph", theme="dark"),
    Picture("status", "/ops", theme="dark"),
    Picture("settings", "/settings#models"),
    Picture("draft", "{document}", clicks=(".proposal",), shows="del.mark-deleted"),
    Picture("draft-discussion", "{document}?thread={thread}", theme="dark", clicks=(".message",)),
    Picture("desk", "{desk}", shows=LIVE),
    Picture("crowd", CROWD, clicks=(".line:not(:has(.line-reply)) >> nth=-1",), shows=".stages"),
    Picture("crowd", CROWD, theme="dark", shows=LIVE),
    Picture("crowd-members", CROWD, clicks=(MEMBERS,), shows=".member"),
    Picture("crowd-member", CROWD, theme="dark", clicks=(MEMBERS, "[data-member=beepboop_basil]"), shows=".person"),
)

TEXT = "“You could write my name in the log, Maren.” *I push the lamp closer to the page.*"
REPLY = """“I could,” she says, and finds the page again. “Two boats in, one guest. It does not say who.”

*She writes slowly, the way she ties knots: once, and so that it holds. Then she turns the log round.*"""
MEMORIES = (
    ("Ana cannot eat shellfish.", "preference", ("Ana",)),
    ("Ana's brother was on the boat that did not come back.", "fact", ("Ana",)),
    ("Teodor once mended the lamp with a fork.", "event", ("Teodor",)),
    ("Teodor and Ana came over on the same ferry.", "event", ("Teodor", "Ana")),
)
PROPOSALS = (
    change("The lamp burns every night, and every night it burns.", "The lamp burns every night.", "It says so twice."),
    change("The boats come late in winter.", "In winter the boats come late.", "End on what matters: late."),
)


def add_content(site: Site) -> dict[str, str]:
    """Mark the old content as read and add new content. Returns the names in the paths of the pictures."""
    site.ask("POST", f"{CROWD}/start", {"stream": STREAM, "speaking": "phrasebook"})
    for job in site.ask("GET", "/ops/jobs?state=dead")["jobs"]:
        site.ask("POST", f"/ops/jobs/{job['id']}/retry")
    (desk,) = EXPECTED["desks"]
    for path in (f"/desk/{desk}", *(f"/chats/{chat}" for chat in EXPECTED["chats"])):
        site.client.post(f"{path}/read").raise_for_status()
    site.clock.behind = timedelta(hours=1)
    site.ask("POST", "/you/here")
    site.clock.behind = timedelta()
    room = next(chat for chat, expected in EXPECTED["chats"].items() if expected["title"] == "The lighthouse")
    maren = site.host(chat := f"/chats/{room}")
    fields = {"weather": "a gale from the west", "clock": "2026-11-18T20:40", f"edge.{maren}.you.affinity": 62}
    site.ask("PATCH", f"{chat}/drawer", {"edits": [{"field": field, "value": fields[field]} for field in fields]})
    remember = partial(site.app.memory.add, owner=maren, room=f"room:{room}", significance=2)
    for text, kind, about in MEMORIES:
        site.call(partial(remember, text, type=kind, about=about))
    site.say(chat, TEXT, REPLY)
    ((workspace, draft),) = EXPECTED["documents"].items()
    base, document = f"/draft/workspaces/{workspace}", draft["document"]
    request = {"document": document, "members": [{"bot": maren}], "title": "Shorter sentences"}
    thread = site.ask("POST", f"{base}/threads", request)["id"]
    site.script.replies.append("In two places, both of them small. " + " ".join(PROPOSALS))
    site.client.post(f"/draft/threads/{thread}/turns", json={"text": "What can be shorter?"}).raise_for_status()
    while site.ask("GET", CROWD)["last"] < 40:  # 17 of them are in the golden instance
        time.sleep(1)
    reply = site.ask("GET", f"{chat}/turns")["turns"][-1]["id"]
    names = {"chat": chat, "reply": reply, "maren": maren, "desk": f"/desk/{desk}"}
    return {**names, "document": f"{base}/documents/{document}", "thread": thread}


def take(browser: Browser, picture: Picture, address: str) -> None:
    viewport = ViewportSize(width=picture.width, height=HEIGHT_BY_WIDTH[picture.width])
    page = browser.new_page(viewport=viewport, color_scheme=picture.theme, locale="en-GB")
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(address)
    for selector in picture.clicks:
        page.locator(selector).first.click()
    page.mouse.move(0, 0)
    page.locator(picture.shows).first.wait_for()
    page.wait_for_timeout(1_500)  # for fonts and for what the page loads later
    file = FOLDER / f"{picture.name}-{picture.width}-{picture.theme}.webp"
    # Lossless files of such pages are smaller than lossy ones.
    Image.open(io.BytesIO(page.screenshot(animations="disabled"))).save(file, lossless=True)
    if file.stat().st_size > MAX_BYTES:
        raise SystemExit(f"{file} is larger than {MAX_BYTES} bytes: choose a page that shows less.")
    page.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_instance(Path(folder) / "home")
        site = Site(Path(folder) / "home", script=DeskScript())
        names = add_content(site)
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for picture in PICTURES:
            take(browser, picture, site.address + picture.path.format(**names))
        browser.close()
        site.close()


if __name__ == "__main__":
    main()
