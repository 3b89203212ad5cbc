"""Take the screenshots of documents in docs/screenshots: `python -m tests.e2e.screenshots_draft`."""

from __future__ import annotations

from tests.e2e.camera import studio
from tests.e2e.conftest import Site
from tests.e2e.draft_document import Paper, change

TEXT = """# Keeping the light

The lamp burns every night, and every night it burns. It was lit in 1871 and has gone out twice.

## Who lights it

Nobody knows who lights it. Nobody asks. The harbour master says that it is *somebody's job*.

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
    with studio() as (site, camera):
        paper, thread = prepare(site)
        for page, width, theme in camera.everywhere(site.address):
            page.goto(paper.address)
            page.locator("[data-state=live]").wait_for()
            page.locator("del.mark-deleted").first.wait_for()
            if width > 1_100:
                page.keyboard.press("j")
            camera.take(page, f"draft-{width}-{theme}")
            if (width, theme) in ((1440, "dark"), (390, "light"), (820, "light")):
                page.goto(f"{paper.address}?thread={thread}")
                page.locator(".message").first.wait_for()
                camera.take(page, f"draft-talk-{width}-{theme}")
            if (width, theme) == (1440, "light"):
                page.goto("/draft")
                camera.take(page, f"drafts-{width}-{theme}")


if __name__ == "__main__":
    main()
