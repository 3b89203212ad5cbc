"""Take the screenshots of the chat and other pages: `python -m tests.e2e.screenshots`. Check them before committing."""

from __future__ import annotations

from functools import partial

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


KEPT = (
    ("Ana cannot eat shellfish.", "preference", ("Ana",)),
    ("Ana's brother was on the boat that did not come back.", "fact", ("Ana",)),
    ("Ana promised to bring the letter on Wednesday.", "goal", ("Ana",)),
    ("Teodor once mended the lamp with a fork.", "event", ("Teodor",)),
    ("Teodor and Ana came over on the same ferry.", "event", ("Teodor", "Ana")),
    ("The harbour master reads the log when nobody looks.", "observation", ()),
    ("Ana takes her tea without sugar, and pretends otherwise.", "preference", ("Ana",)),
    ("Ana is afraid of the stairs.", "observation", ("Ana",)),
)


def prepare(site: Site) -> str:
    """Add characters, chats and memories; return the path of a chat."""
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


def shoot_places(camera: Camera, site: Site, chat: str) -> None:
    """The other pages, in one or two sizes and themes."""
    character = next(each["id"] for each in site.ask("GET", "/characters") if each["name"] == "Maren Oke")
    memory = site.app.memory
    room = site.call(lambda: next(iter(memory.browse(owner=character))).room)
    kept = [
        site.call(
            partial(memory.add, text, owner=character, room=room, type=kind, about=people, significance=1 + at % 3)
        )
        for at, (text, kind, people) in enumerate(KEPT)
    ]
    site.call(partial(memory.link, kept[1], "caused_by", kept[2]))
    site.call(partial(memory.link, kept[3], "related_to", kept[4]))
    reply = site.ask("GET", f"{chat}/turns")["turns"][-1]["id"]
    places = {
        "characters": ("/characters", ((1440, "light"),)),
        "character": (f"/characters/{character}", ((820, "dark"),)),
        "new": ("/characters/new", ((390, "light"),)),
        "kickoff": (f"/characters/{character}/kickoff", ((1440, "light"),)),
        "memory": ("/memory", ((1440, "light"),)),
        "graph": ("/memory?view=graph", ((1440, "dark"),)),
        "prompt": (f"{chat}/prompt/{reply}", ((1440, "light"),)),
        "settings": ("/settings#models", ((1440, "light"), (390, "dark"))),
        "workshop": ("/ops", ((1440, "dark"), (390, "light"))),
    }
    for page, width, theme in camera.everywhere(site.address):
        for name, (path, wanted) in places.items():
            if (width, theme) in wanted:
                page.goto(path)
                page.wait_for_load_state("networkidle")
                camera.take(page, f"{name}-{width}-{theme}")


def main() -> None:
    with studio() as (site, camera):
        chat = prepare(site)
        shoot(camera, site, chat)
        shoot_places(camera, site, chat)


if __name__ == "__main__":
    main()
