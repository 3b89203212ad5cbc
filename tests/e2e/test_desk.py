"""D1, D2, D15, D20 in a browser: talk while tasks run, follow them live, and act on them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from coterie.modes.desk.agents.tools import make_tool
from tests.e2e.axe import serious
from tests.e2e.conftest import TIMEOUT_MS, Site
from tests.e2e.desk_script import DeskScript
from tests.e2e.test_hostile import HOSTILE


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    script = DeskScript()
    running = Site(tmp_path_factory.mktemp("site") / "home", script=script)

    async def dig() -> str:
        """Dig for a long time."""
        await script.dug.wait()
        return "Dug."

    async def send_mail(to: str) -> str:
        """Send a mail."""
        return f"It is sent to {to}."

    running.call(lambda: running.app.desk.add_tools([make_tool(dig), make_tool(send_mail, needs_confirmation=True)]))
    running.ask("PUT", "/you", {"name": "Ana"})
    running.ask("POST", "/characters/ready/maren")
    yield running
    running._loop.call_soon_threadsafe(script.dug.set)
    running.close()


@pytest.fixture
def site(_site: Site) -> Site:
    return _site


@pytest.fixture
def desk(site: Site, page: Page) -> str:
    page.goto("/desk")
    page.get_by_label("About").fill("The garden")
    page.get_by_role("button", name="Start conversation").click()
    expect(page.locator("[data-state=live]")).to_be_visible()
    return page.url


def say(page: Page, text: str) -> None:
    page.get_by_label("Say something").fill(text)
    page.keyboard.press("Enter")


def test_d1_it_answers_at_once_and_reports_the_result_of_the_task(site: Site, page: Page, desk: str) -> None:
    say(page, "Please count the words of the note")
    expect(page.locator("#messages")).to_contain_text("I will count the words of the note")
    # Four turns of a worker, one of them in a real sandbox.
    expect(page.locator("#messages")).to_contain_text("It is done: the note has three words.", timeout=4 * TIMEOUT_MS)
    worker = page.locator(".desk-process", has_text="count the words of the note").filter(has=page.get_by_text("Steps"))
    expect(worker).to_have_attribute("data-state", "done")
    worker.get_by_role("button", name=re.compile("Steps of")).click()
    expect(page.locator("#steps-body")).to_contain_text("wc -w note.txt")
    assert serious(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("#spent-today")).to_contain_text("calls")
    assert serious(page) == []


def test_d2_a_running_task_is_cancelled_while_talking(site: Site, page: Page, desk: str) -> None:
    say(page, "Please dig a hole")
    running = page.locator(".desk-process[data-state=running]", has_text="dig a hole").filter(has_text="task")
    expect(running).to_be_visible()
    say(page, "Good morning")
    expect(page.locator("#messages")).to_contain_text("What should be done?")
    running.get_by_role("button", name=re.compile("Cancel ")).click()
    expect(page.locator(".desk-process[data-state=cancelled]", has_text="dig a hole")).to_be_visible()


def test_d2_a_question_is_answered_and_d20_an_action_is_approved(site: Site, page: Page, desk: str) -> None:
    say(page, "Please draft a letter")
    page.get_by_role("button", name="Answer …").click()
    expect(page.locator("#follow-up-question")).to_have_text("Formal or friendly?")
    page.get_by_label("Your answer").fill("friendly, please")
    page.get_by_role("button", name="Send answer").click()
    expect(page.locator(".desk-process[data-state=done]", has_text="Dear friend, friendly")).to_be_visible()
    say(page, "Please mail Bo")
    asks = page.locator(".desk-process[data-state=waiting]", has_text="send_mail")
    expect(asks).to_contain_text("bo@example.com")
    assert serious(page) == []
    asks.get_by_role("button", name="Allow").click()
    expect(page.locator(".desk-process[data-state=done]", has_text="It went out.")).to_be_visible()


def test_d15_schedules(site: Site, page: Page, desk: str) -> None:
    page.get_by_role("button", name="Add …").click()
    page.get_by_label("What to do").fill("Look at the news")
    page.get_by_label("Repeat").select_option("Every Monday")
    page.get_by_label("At", exact=True).fill("09:30")
    page.locator("#schedule summary").click()
    expect(page.get_by_label("Cron expression")).to_have_value("30 9 * * 1")
    page.locator("#schedule-cron").fill("99 * * * *")
    page.get_by_role("button", name="Add schedule").click()
    expect(page.locator("#toasts")).to_contain_text("not a cron expression")
    assert serious(page) == []
    page.locator("#schedule-cron").fill("0 8 * * *")
    page.get_by_role("button", name="Add schedule").click()
    row = page.locator("[data-schedule]", has_text="Look at the news")
    expect(row).to_contain_text("next")
    row.get_by_role("button", name="Switch off").click()
    expect(row.get_by_text("off", exact=True)).to_be_visible()
    row.get_by_role("button", name=re.compile("Remove")).click()
    expect(page.locator("#activity")).to_contain_text("No schedule yet.")


def test_hostile_messages_are_shown_as_text(site: Site, page: Page, desk: str) -> None:
    say(page, f"Please dig {HOSTILE}")
    expect(page.locator(".desk-process", has_text="dig").first).to_be_visible()
    injected = "#messages script, #activity script, #activity img, #messages img:not(.avatar img)"
    assert page.evaluate("(selector) => document.querySelectorAll(selector).length", injected) == 0


@pytest.mark.parametrize(("width", "height"), [(820, 1100), (390, 844)])
def test_on_small_screens_activity_opens_in_a_drawer(
    site: Site, page: Page, desk: str, width: int, height: int
) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.goto(desk)
    expect(page.locator("#drawer")).to_be_hidden()
    page.get_by_role("button", name="Activity").click()
    expect(page.locator("#drawer")).to_be_visible()
    assert serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_list_and_the_system_status_show_the_desk(site: Site, page: Page, desk: str) -> None:
    page.goto("/desk")
    expect(page.get_by_role("link", name="The garden").first).to_be_visible()
    assert serious(page) == []
    page.goto("/ops")
    expect(page.locator("#sandbox")).to_contain_text("bubblewrap")
    assert serious(page) == []
