"""The system's Chromium, and windows of it in every size and theme."""

from __future__ import annotations

import os
import shutil
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Locator, Page

Theme = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("The browser tests need Chromium: apt install chromium, or CHROMIUM=/path/to/it make test")
    return found


def window(browser: Browser, address: str, width: int, height: int, theme: Theme) -> BrowserContext:
    """What is as narrow as a phone is touched like one."""
    return browser.new_context(
        base_url=address,
        viewport={"width": width, "height": height},
        color_scheme=theme,
        has_touch=width < 500,
        is_mobile=width < 500,
    )


def shown(place: Locator) -> str:
    """Its words, painted or not: of what is off the screen, or new, `inner_text` tells nothing."""
    return place.text_content() or ""


def told_by(page: Page) -> str:
    """What a page says of itself, for whoever reads that a test failed on it."""
    return str(
        page.evaluate(
            """() => [
                location.href,
                "focus: " + (document.activeElement?.outerHTML ?? "").slice(0, 160),
                ...[...document.querySelectorAll("[role=status], [role=alert], .toast, dialog[open]")]
                    .map((one) => one.textContent.trim()).filter(Boolean),
            ].join("\\n")"""
        )
    )
