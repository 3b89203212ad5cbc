"""What axe finds on a page that would keep somebody out."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def check(page: Page) -> None:
    """Nobody is kept out, and nothing is wider than the window."""
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
