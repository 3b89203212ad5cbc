"""Take the screenshots of the desk: `python -m tests.e2e.screenshots_desk`. Check them before committing."""

from __future__ import annotations

import time

from coterie.modes.desk.agents.tools import make_tool
from tests.e2e.camera import Camera, studio
from tests.e2e.conftest import Site
from tests.e2e.desk_script import DeskScript

WISHES = ("Good morning", "Please count the words of the note", "Please dig over the bed by the wall", "Please mail Bo")


def prepare(site: Site, script: DeskScript) -> str:
    """Add a desk conversation with tasks in every state; return its path."""

    async def dig() -> str:
        """Dig for a long time."""
        await script.dug.wait()
        return "Dug."

    async def send_mail(to: str) -> str:
        """Send a mail."""
        return f"It is sent to {to}."

    site.call(lambda: site.app.desk.add_tools([make_tool(dig), make_tool(send_mail, needs_confirmation=True)]))
    site.ask("PUT", "/you", {"name": "Ana"})
    bot = site.ask("POST", "/characters/ready/maren")["id"]
    site.ask("POST", "/desk", {"character": bot, "title": "The accounts"})
    desk = f"/desk/{site.ask('POST', '/desk', {'character': bot, 'title': 'The garden'})['id']}"
    for wish in WISHES:
        site.ask("POST", f"{desk}/messages?wait=true", {"text": wish})
        while "count" in wish and not site.ask("GET", f"{desk}/messages")[-1]["text"].startswith("It is done"):
            time.sleep(0.2)
    for prompt, when in (
        ("Say what is in bloom, and what needs water.", {"cron": "0 8 * * 1-5", "zone": "Europe/Berlin"}),
        ("Look at the frost warning.", {"every_s": 3600, "hours": "18:00-07:00", "zone": "Europe/Berlin"}),
    ):
        site.ask("POST", f"{desk}/schedules", {"prompt": prompt, "when": when})
    return desk


def shoot(camera: Camera, site: Site, desk: str) -> None:
    for page, width, theme in camera.everywhere(site.address):
        page.goto(desk)
        page.locator("[data-live][data-state=live]").wait_for()
        page.get_by_text("It is done: the note has three words").wait_for()
        camera.take(page, f"desk-{width}-{theme}")
        if width == 390:
            page.get_by_role("button", name="Activity").click()
            page.locator("#drawer .desk-process").first.wait_for()
            camera.take(page, f"desk-now-{width}-{theme}")
        if (width, theme) == (1440, "light"):
            page.goto("/desk")
            camera.take(page, f"desks-{width}-{theme}")


def main() -> None:
    script = DeskScript()
    with studio(script) as (site, camera):
        shoot(camera, site, prepare(site, script))


if __name__ == "__main__":
    main()
