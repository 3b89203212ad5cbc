"""The crowd's pictures in docs/screenshots, taken from the demo: `python -m tests.e2e.screenshots_crowd`.

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

from playwright.sync_api import Browser, Page

from tests.e2e.browser import Theme, window
from tests.e2e.camera import THEMES, Camera, camera

TIMEOUT_MS = 300_000
SMALLER = ((820, 1100), (390, 844))


@contextmanager
def demo() -> Iterator[str]:
    """Start the demo; yield its address."""
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


def shoot(taking: Camera, address: str) -> None:
    page = _open(taking.browser, address, 1440, 900, "light")
    page.locator(".line").nth(8).wait_for()
    page.locator("#crowd-events li").first.wait_for()
    page.locator(".line:not(:has(.line-reply))").last.click()
    page.locator(".stages").wait_for()
    print(page.locator(".message").inner_text())
    taking.take(page, "crowd-1440-light")
    page.locator("[data-message-close]").click()
    page.emulate_media(color_scheme="dark")
    taking.take(page, "crowd-1440-dark")
    page.get_by_role("tab", name="Members").click()
    page.locator(".member").first.wait_for()
    page.emulate_media(color_scheme="light")
    taking.take(page, "crowd-members-1440-light")
    page.locator("[data-member=salt_lamp]").first.click()
    page.locator(".person").wait_for()
    page.emulate_media(color_scheme="dark")
    taking.take(page, "crowd-person-1440-dark")
    for width, height in SMALLER:
        for theme in THEMES:
            smaller = _open(taking.browser, address, width, height, theme)
            smaller.locator(".line").last.wait_for()
            taking.take(smaller, f"crowd-{width}-{theme}")
            if (width, theme) == (820, "light"):
                smaller.get_by_role("tab", name="Stream").click()
                taking.take(smaller, "crowd-stream-820-light")
            smaller.context.close()


def _open(browser: Browser, address: str, width: int, height: int, theme: Theme) -> Page:
    context = window(browser, address, width, height, theme)
    context.set_default_timeout(TIMEOUT_MS)
    page = context.new_page()
    page.goto("/crowd/late-shift")
    return page


def main() -> None:
    with demo() as address, camera() as taking:
        shoot(taking, address)


if __name__ == "__main__":
    main()
