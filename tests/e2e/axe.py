"""Accessibility checks of a page with axe."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

ANIMATIONS_END = """Promise.allSettled(document.getAnimations()
    .filter((animation) => animation.effect.getComputedTiming().endTime !== Infinity)
    .map((animation) => animation.finished))"""


def serious(page: Page) -> list[str]:
    """Return the serious and critical violations after animations: fading text has too little contrast."""
    page.evaluate(ANIMATIONS_END)
    return [
        f"{violation['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


def check(page: Page) -> None:
    """Assert that there are no serious violations and that nothing is wider than the window."""
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
