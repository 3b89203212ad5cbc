"""The pictures in docs/screenshots, taken anew: `python -m tests.e2e.screenshots`. Look at them, then keep them."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.browser import find_chromium
from tests.e2e.conftest import Site

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
SIZES = ((1440, 900), (820, 1100), (390, 844))
THEMES = ("light", "dark")
_TO_WEBP = """async data => { const image = new Image(); image.src = data; await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height); canvas.getContext("2d").drawImage(image, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.82 });
    return btoa(String.fromCharCode(...new Uint8Array(await blob.arrayBuffer()))); }"""

STORY = (
    (
        '*shakes the rain off my coat* "You said the lamp would be lit at six."',
        "*Maren does not turn round. The lamp is lit; it has been lit for an hour, and her hands are still black"
        ' with it.*\n\n"It was lit at six," she says. "You were late at six."\n\nShe wipes one hand on the other, which'
        " helps neither, and at last looks at you: at your shoes first, the way she looks at boats.",
    ),
    (
        '"I brought the letter." *I put it on the table, face down.* ((slow burn, please))',
        'She looks at the letter for as long as it takes the light to come round once.\n\n"**Don\'t** open it here,"'
        ' she says, quietly. "Not in front of *her*."\n\nShe nods, at neither the door nor the window, but to sea.',
    ),
)


def prepare(site: Site) -> str:
    """A house that looks lived in; the path of its chat."""
    chat = site.begin(weather="a gale from the west")
    for said, reply in STORY:
        site.say(chat, said, reply)
    site.begin("teodor", title="The night train", place={"name": "the dining car"})
    return chat


def take(page: Page, converter: Page, name: str) -> None:
    png = base64.b64encode(page.screenshot(animations="disabled")).decode()
    webp = converter.evaluate(_TO_WEBP, f"data:image/png;base64,{png}")
    (FOLDER / f"{name}.webp").write_bytes(base64.b64decode(webp))


def shoot(browser: Browser, site: Site, chat: str) -> None:
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
            page.goto(chat)
            page.locator("[data-state=live]").wait_for()
            take(page, converter, f"chat-{width}-{theme}")
            if (width, theme) in ((1440, "light"), (390, "dark")):
                page.keyboard.press("d")
                page.locator("#drawer .memory").first.wait_for()
                take(page, converter, f"drawer-{width}-{theme}")
                page.goto("/chats")
                take(page, converter, f"chats-{width}-{theme}")
            context.close()


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        site = Site(Path(folder) / "house")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        shoot(browser, site, prepare(site))
        browser.close()
        site.close()


if __name__ == "__main__":
    main()
