"""The pictures of documents in docs/screenshots, taken anew: `python -m tests.e2e.screenshots_draft`."""

from __future__ import annotations

import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.e2e.browser import find_chromium
from tests.e2e.conftest import Site
from tests.e2e.desk import Paper, change
from tests.e2e.screenshots import SIZES, THEMES, take

TEXT = """# Keeping the light

The lamp burns every night, and every night it burns. It was lit in 1871 and has gone out twice: once for a storm, once for a wedding.

## Who lights it

Nobody knows who lights it. Nobody asks. The harbour master says that it is *somebody's job*, and that the somebody is paid.

- The wick is trimmed at noon.
- The glass is wiped when it is dark enough to see the smears.

> A light that is never late is not noticed.

The boats come late in winter.
"""


def prepare(site: Site) -> tuple[Paper, str]:
    paper = Paper(site, TEXT, "keeping-the-light.md")
    thread = paper.thread()
    paper.propose(
        thread,
        change(
            "The lamp burns every night, and every night it burns.", "The lamp burns every night.", "It says so twice."
        ),
        change(
            "Nobody knows who lights it. Nobody asks.", "Nobody knows who lights it, and nobody asks.", "One breath."
        ),
        change("The boats come late in winter.", "In winter the boats come late.", "End on what matters: late."),
        say="Where does it say the same thing twice?",
    )
    return paper, thread


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Site(Path(folder) / "house")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        paper, thread = prepare(site)
        converter = browser.new_page()
        for width, height in SIZES:
            for theme in THEMES:
                context = browser.new_context(
                    base_url=site.address,
                    viewport={"width": width, "height": height},
                    color_scheme=theme,  # type: ignore[arg-type]
                    has_touch=width < 500,
                    is_mobile=width < 500,
                )
                page = context.new_page()
                page.goto(paper.address)
                page.locator("[data-state=live]").wait_for()
                page.locator("del.mark-out").first.wait_for()
                if width > 1_100:
                    page.keyboard.press("j")
                take(page, converter, f"draft-{width}-{theme}")
                if (width, theme) in ((1440, "dark"), (390, "light"), (820, "light")):
                    page.goto(f"{paper.address}?thread={thread}")
                    page.locator(".said").first.wait_for()
                    take(page, converter, f"draft-talk-{width}-{theme}")
                if (width, theme) == (1440, "light"):
                    page.goto("/draft")
                    take(page, converter, f"drafts-{width}-{theme}")
                context.close()
        browser.close()
        site.close()


if __name__ == "__main__":
    main()
