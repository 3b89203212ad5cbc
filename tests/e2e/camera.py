"""Takes the screenshots in docs/screenshots."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.browser import Theme, find_chromium, window
from tests.e2e.conftest import Site
from tests.surfaces.web.conftest import Paced

_FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
_SIZES = ((1440, 900), (820, 1100), (390, 844))
THEMES: tuple[Theme, ...] = ("light", "dark")
_TO_WEBP = """async data => { const image = new Image(); image.src = data; await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height); canvas.getContext("2d").drawImage(image, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.82 });
    return btoa(String.fromCharCode(...new Uint8Array(await blob.arrayBuffer()))); }"""


class Camera:
    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self._converter = browser.new_page()

    def everywhere(self, address: str) -> Iterator[tuple[Page, int, Theme]]:
        """A fresh window of each size in each theme."""
        for width, height in _SIZES:
            for theme in THEMES:
                context = window(self.browser, address, width, height, theme)
                yield context.new_page(), width, theme
                context.close()

    def take(self, page: Page, name: str) -> None:
        png = base64.b64encode(page.screenshot(animations="disabled")).decode()
        webp = self._converter.evaluate(_TO_WEBP, f"data:image/png;base64,{png}")
        _FOLDER.mkdir(parents=True, exist_ok=True)
        (_FOLDER / f"{name}.webp").write_bytes(base64.b64decode(webp))


@contextmanager
def camera() -> Iterator[Camera]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield Camera(browser)
        browser.close()


@contextmanager
def studio(script: Paced | None = None) -> Iterator[tuple[Site, Camera]]:
    """A server of its own for screenshots."""
    with tempfile.TemporaryDirectory() as folder, camera() as taking:
        site = Site(Path(folder) / "home", script=script)
        yield site, taking
        site.close()
