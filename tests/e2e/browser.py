"""The installed Chromium, and browser contexts for a size and theme."""

from __future__ import annotations

import os
import shutil
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Locator, Page

Theme = Literal["light", "dark"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str:
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise RuntimeError("The browser tests need Chromium: apt install chromium, or CHROMIUM=/path/to/it make test")
    return path


def window(browser: Browser, address: str, width: int, height: int, theme: Theme) -> BrowserContext:
    """A browser context; below 500 pixels it emulates a phone with touch."""
    return browser.new_context(
        base_url=address,
        viewport={"width": width, "height": height},
        color_scheme=theme,
        has_touch=width < 500,
        is_mobile=width < 500,
    )


def shown(place: Locator) -> str:
    """The text, whether rendered or not; `inner_text` is empty for elements that are off the screen."""
    return place.text_content() or ""


def describe_page(page: Page) -> str:
    """URL, focus and visible messages of a page, for the report of a failed test."""
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
