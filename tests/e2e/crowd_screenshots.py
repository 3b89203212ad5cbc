"""The crowd's pictures in docs/screenshots, taken from the demo: `python -m tests.e2e.crowd_screenshots`.

The whole of it runs: speech is made and listened to, the embedded model and the phrasebooks speak, nothing is scripted.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.browser import find_chromium
from tests.e2e.screenshots import FOLDER, take

PATIENCE_MS = 300_000
SMALLER = ((820, 1100), (390, 844))


@contextmanager
def demo() -> Iterator[str]:
    """Its address."""
    with tempfile.TemporaryDirectory() as home:
        running = subprocess.Popen(
            [sys.executable, "-u", "-m", "coterie", "crowd", "demo", "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COTERIE_HOME": home},
        )
        assert running.stdout is not None
        try:
            yield next(found[1] for line in running.stdout if (found := re.search(r"(http://[\d.:]+)", line)))
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(60)


def shoot(browser: Browser, address: str) -> None:
    converter = browser.new_page()
    page = _open(browser, address, 1440, 900, "light")
    page.locator(".line").nth(8).wait_for()
    page.locator("#crowd-moments li").first.wait_for()
    page.locator(".line:not(:has(.line-reply))").last.click()
    page.locator(".stages").wait_for()
    print(page.locator(".said").inner_text())
    take(page, converter, "crowd-1440-light")
    page.locator("[data-said-closes]").click()
    page.emulate_media(color_scheme="dark")
    take(page, converter, "crowd-1440-dark")
    page.get_by_role("tab", name="Regulars").click()
    page.locator(".regular").first.wait_for()
    page.emulate_media(color_scheme="light")
    take(page, converter, "crowd-regulars-1440-light")
    page.locator("[data-regular=salt_lamp]").first.click()
    page.locator(".person").wait_for()
    page.emulate_media(color_scheme="dark")
    take(page, converter, "crowd-person-1440-dark")
    for width, height in SMALLER:
        for theme in ("light", "dark"):
            smaller = _open(browser, address, width, height, theme)
            smaller.locator(".line").last.wait_for()
            take(smaller, converter, f"crowd-{width}-{theme}")
            if (width, theme) == (820, "light"):
                smaller.get_by_role("tab", name="Stream").click()
                take(smaller, converter, "crowd-stream-820-light")
            smaller.context.close()


def _open(browser: Browser, address: str, width: int, height: int, theme: str) -> Page:
    context = browser.new_context(
        base_url=address,
        viewport={"width": width, "height": height},
        color_scheme=theme,  # type: ignore[arg-type]
        has_touch=width < 500,
        is_mobile=width < 500,
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto("/crowd/late-shift")
    return page


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with demo() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        shoot(browser, address)
        browser.close()


if __name__ == "__main__":
    main()
