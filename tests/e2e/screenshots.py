"""The pictures in docs/screenshots, taken anew: `python -m tests.e2e.screenshots`. Look at them, then keep them."""

from __future__ import annotations

from tests.e2e.camera import Camera, studio
from tests.e2e.conftest import Site

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


def shoot(camera: Camera, site: Site, chat: str) -> None:
    for page, width, theme in camera.everywhere(site.address):
        page.goto(chat)
        page.locator("[data-state=live]").wait_for()
        camera.take(page, f"chat-{width}-{theme}")
        if (width, theme) in ((1440, "light"), (390, "dark")):
            page.keyboard.press("d")
            page.locator("#drawer .memory").first.wait_for()
            camera.take(page, f"drawer-{width}-{theme}")
            page.goto("/chats")
            camera.take(page, f"chats-{width}-{theme}")


def main() -> None:
    with studio() as (site, camera):
        shoot(camera, site, prepare(site))


if __name__ == "__main__":
    main()
