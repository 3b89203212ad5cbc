"""Take the screenshots of the home page and a character's activity: `python -m tests.e2e.screenshots_home`."""

from __future__ import annotations

import time
from datetime import timedelta

from coterie.eventstore import NewJob
from coterie.modes.desk.agents.tools import make_tool
from tests.e2e.camera import Camera, studio
from tests.e2e.conftest import Site
from tests.e2e.desk_script import DeskScript
from tests.e2e.draft_document import Paper, change
from tests.e2e.screenshots import STORY
from tests.e2e.screenshots_draft import TEXT


def go_away(site: Site) -> None:
    """Record a visit yesterday."""
    site.clock.behind = timedelta(hours=9)
    site.ask("POST", "/you/here")
    site.clock.behind = timedelta()


def prepare(site: Site, script: DeskScript) -> str:
    """Add activity in every mode; return the id of a character that takes part in all."""

    async def dig() -> str:
        """Dig for a long time."""
        await script.dug.wait()
        return "Dug."

    async def send_mail(to: str) -> str:
        """Send a mail."""
        return f"It is sent to {to}."

    site.call(lambda: site.app.desk.add_tools([make_tool(dig), make_tool(send_mail, needs_confirmation=True)]))
    go_away(site)
    train = site.begin("teodor", title="The night train", place={"name": "the dining car"})
    paper = Paper(site, TEXT, "keeping-the-light.md")
    bot = paper.bot["id"]
    site.say(train, "Is this seat taken?", "“By the view,” he says, and moves his coat.")
    body = {"title": "The lighthouse", "place": {"name": "the lamp room"}}
    chat = f"/chats/{site.ask('POST', f'/characters/{bot}/kickoff', body)['id']}"
    for said, reply in STORY:
        site.say(chat, said, reply)
    site.ask("POST", "/characters/ready/io")
    paper.propose(
        paper.thread(),
        change("Nobody knows who lights it. Nobody asks.", "Nobody knows who lights it, and nobody asks."),
        change("The boats come late in winter.", "In winter the boats come late."),
    )
    desk = f"/desk/{site.ask('POST', '/desk', {'character': bot, 'title': 'The garden'})['id']}"
    for wish in ("Please count the words of the note", "Please dig over the bed by the wall", "Please mail Bo"):
        site.ask("POST", f"{desk}/messages?wait=true", {"text": wish})
        while "count" in wish and not site.ask("GET", f"{desk}/messages")[-1]["text"].startswith("It is done"):
            time.sleep(0.2)
    while not any(one["needs_yes"] for one in site.ask("GET", f"{desk}/processes")):
        time.sleep(0.2)
    site.do(site.app.people.request_pairing("matrix", "@bo:example.org", "Bo", 60))
    site.do(site.app.store.jobs.enqueue([NewJob("sending_a_copy", key="picture")]))
    (job,) = site.do(site.app.store.jobs.lease(["sending_a_copy"], holder="picture"))
    site.do(site.app.store.jobs.fail(job, "The disk is full.", fatal=True))
    return f"/characters/{bot}"


def shoot(camera: Camera, site: Site, bot: str) -> None:
    for page, width, theme in camera.everywhere(site.address):
        page.goto("/")
        camera.take(page, f"home-{width}-{theme}")
        if (width, theme) in ((1440, "light"), (390, "dark")):
            page.goto(bot)
            page.get_by_role("tab", name="Activity").click()
            camera.take(page, f"together-{width}-{theme}")


def main() -> None:
    script = DeskScript()
    with studio(script) as (site, camera):
        shoot(camera, site, prepare(site, script))


if __name__ == "__main__":
    main()
