"""Settings, memory, system status, search and prompt pages in a browser.

All tests share one server and one browser; later tests may see data of earlier ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from coterie.eventstore import NewJob
from coterie.memory.records import MemoryType
from coterie.memory.writer import NewMemory
from tests.e2e.axe import check
from tests.e2e.conftest import Site, Watched
from tests.e2e.test_hostile import ALL, HOSTILE, assert_nothing_runs


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    running = Site(tmp_path_factory.mktemp("pages") / "home")
    yield running
    running.close()


@pytest.fixture(scope="module")
def begun(site: Site) -> str:
    """A chat with two exchanges and memories of them."""
    chat = site.begin()
    for text, reply in [("I cannot eat walnuts.", '"Then we bake without."'), ("Is the radio mended?", "*She nods.*")]:
        site.say(chat, text, reply)
    return chat


# --- settings ----------------------------------------------------------------------------------------------


def test_settings_show_their_origin_and_errors(page: Page, site: Site, begun: str) -> None:
    page.goto("/settings")
    section = page.locator("#advanced [data-group]").filter(has=page.locator("summary", has_text="Stories"))
    section.locator("summary").click()
    field = page.get_by_label("Memories recalled per reply")
    expect(field).to_have_value("4")
    field.fill("many")
    section.get_by_role("button", name="Save").click()
    expect(section.locator(".field-error")).to_contain_text("Should be a valid integer, not 'many'")
    expect(field).to_be_focused()
    field.fill("6")
    section.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text("Saved")
    page.reload()
    expect(field).to_have_value("6")
    expect(section).to_contain_text("Default: 4 · set in config.toml line")


def test_settings_are_searched_and_changed_with_the_keyboard_only(page: Page, site: Site, begun: str) -> None:
    page.goto("/settings")
    names = ["You", "Appearance", "Models", "Messengers", "People", "Budget", "Backups", "Advanced"]
    expect(page.locator(".settings-nav a")).to_have_text(names)
    page.keyboard.press("/")
    page.keyboard.type("reply SIZE")
    found = page.locator("#settings-found")
    expect(found).to_have_text("2 found")
    expect(page.get_by_label("Spending per day")).to_be_hidden()
    check(page)
    page.keyboard.press("Enter")
    field = page.get_by_label("Maximum reply size (tokens)").first
    expect(field).to_be_focused()
    page.keyboard.press("Control+A")
    page.keyboard.type("500")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Save budget")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#toasts")).to_contain_text("Saved. In effect now.")
    page.keyboard.press("/")
    page.keyboard.press("Control+A")
    page.keyboard.type("xyzzy")
    expect(found).to_have_text("No setting has these words.")
    page.keyboard.press("Escape")
    expect(page.locator("#you")).to_be_visible()
    expect(page.locator(".settings-nav a")).to_have_text(names)
    for _ in range(12):  # from the search on, every stop of the keyboard is visible
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.checkVisibility() && document.activeElement !== document.body")
    settings = {one["key"]: one["value"] for one in site.ask("GET", "/settings")["settings"]}
    assert settings["story.reply_tokens"] == 500


def test_settings_do_not_jump_when_a_section_changes(page: Page, site: Site, begun: str) -> None:
    page.goto("/settings")
    page.locator("#backups").scroll_into_view_if_needed()
    page.get_by_role("button", name="Back up now").scroll_into_view_if_needed()
    before = page.get_by_role("button", name="Back up now").bounding_box()
    page.evaluate("htmx.ajax('GET', '/settings/models/current', { target: '#models-current', swap: 'innerHTML' })")
    page.get_by_role("button", name="Back up now").click()
    expect(page.locator("#toasts")).to_contain_text("Kept as")
    after = page.get_by_role("button", name="Back up now").bounding_box()
    assert before is not None and after is not None
    assert abs(before["y"] - after["y"]) < 2


def test_s28_a_backup_is_taken_from_the_page(page: Page, site: Site, begun: str) -> None:
    page.goto("/settings#backups")
    before = len(site.ask("GET", "/backups"))
    page.get_by_role("button", name="Back up now").click()
    expect(page.locator("#backup-list li")).to_have_count(before + 1)
    page.get_by_text("Restore from the command line").click()
    expect(page.get_by_text("coterie restore")).to_be_visible()


# --- memory ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remembered(site: Site, begun: str) -> str:
    character, room = site.host(begun), f"room:{begun.rsplit('/', 1)[1]}"
    texts: list[tuple[str, MemoryType, int]] = [
        ("Ana is allergic to walnuts.", "fact", 3),
        ("Ana mended the radio.", "event", 1),
        ("The mail boat is late.", "event", 0),
    ]

    def add() -> None:
        made = site.app.memory.add_many(
            [NewMemory(text, character, room, type=kind, significance=weight, about=("you",),
                       witnesses=("you", character),
                       happened=datetime(2024, 10, 1 + n, tzinfo=UTC)) for n, (text, kind, weight) in enumerate(texts)]
        )  # fmt: skip
        site.app.memory.link(made[0].id, "related_to", made[1].id)

    site.call(add)
    return character


def test_m7_memories_are_searched_filtered_and_explained(page: Page, remembered: str) -> None:
    page.goto("/memory")
    page.get_by_label("Search memory").fill("what can Ana not eat, walnuts?")
    page.keyboard.press("Enter")
    first = page.locator("[data-memory]").filter(has_text="walnuts").first
    first.locator("summary", has_text="Score").click()
    expect(first.locator(".why-parts dt").first).to_be_visible()
    check(page)
    page.goto("/memory")
    page.get_by_label("Type").select_option("fact")
    expect(page).to_have_url(re.compile(r"/memory\?view=list&type=fact$"))
    expect(page.locator("[data-memory]")).to_have_count(1)
    page.goto("/memory?since=2024-10-02&until=2024-10-02&view=timeline")
    expect(page.locator("[data-memory] [data-text]")).to_have_text(["Ana mended the radio."])


def test_m7_a_memory_is_pinned_edited_and_deleted(page: Page, site: Site, remembered: str) -> None:
    page.goto(f"/memory?owner={remembered}")
    row = page.locator("[data-memory]").filter(has_text="The mail boat is late.")
    memory, room = row.get_attribute("data-memory"), row.get_attribute("data-room")
    row.get_by_role("button", name="Pin", exact=True).click()
    expect(row.get_by_role("button", name="Unpin")).to_have_attribute("aria-pressed", "true")
    assert site.ask("GET", f"/memories/{memory}?room={room}")["pinned"]
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(row.get_by_role("button", name="Pin", exact=True)).to_have_attribute("aria-pressed", "false")
    row.get_by_role("button", name="Edit").click()
    page.get_by_label("What is remembered").fill("The mail boat came after all.")
    page.get_by_label("How much it mattered").select_option("2")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    changed = page.locator("[data-memory]").filter(has_text="came after all")
    expect(changed.get_by_label("significance 2 of 3")).to_be_visible()
    changed.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("dialog")).to_contain_text("It will not come back")
    check(page)
    page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(changed).to_have_count(0)
    assert site.client.get(f"/memories/{memory}").status_code == 404


def test_m7_people_and_links_are_drawn(page: Page, remembered: str) -> None:
    page.goto(f"/memory?owner={remembered}&view=graph")
    expect(page.locator(".graph-person").filter(has_text="Ana")).to_be_visible()
    expect(page.locator(".graph-link")).not_to_have_count(0)
    page.locator(".graph a").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("[data-memory]").first).to_be_visible()


def test_m7_memories_are_exported_and_imported(page: Page, site: Site, remembered: str, tmp_path: Path) -> None:
    page.goto(f"/memory?owner={remembered}")
    page.get_by_role("button", name="Export and import").click()
    with page.expect_download() as got:
        page.get_by_role("menuitem", name="Export").click()
    file = tmp_path / "memories.jsonl"
    got.value.save_as(file)
    other = site.ask("POST", "/characters", {"name": "Listener"})["id"]
    page.goto("/memory")
    page.get_by_role("button", name="Export and import").click()
    page.get_by_role("menuitem", name="Import").click()
    page.get_by_label("Who should remember it").select_option(other)
    page.locator("#memories input").set_input_files(file)
    expect(page.locator(".drop-good")).to_contain_text("new")
    assert site.ask("GET", f"/memories?owner={other}")
    file.write_text("not a memory")
    page.locator("#memories input").set_input_files(file)
    expect(page.locator(".drop-bad")).to_contain_text("Line 1")


# --- system status, search, prompt --------------------------------------------------------------------------


def test_a_failed_job_is_announced_on_any_page_and_retried_on_the_status_page(
    page: Page, site: Site, begun: str
) -> None:
    async def die() -> None:
        jobs = site.app.store.jobs
        await jobs.enqueue([NewJob("sample", key="sample", payload={})])
        (job,) = await jobs.lease(["sample"], holder="test")
        await jobs.fail(job, "<b>It</b> broke.", fatal=True)

    site.do(die())
    page.goto("/characters")
    expect(page.locator("#toasts")).to_contain_text("<b>It</b> broke.")
    expect(page.locator('.rail-link[href="/ops"]')).to_have_attribute("data-failures", "1")
    page.locator("#toasts").get_by_role("button", name="Show").click()
    expect(page).to_have_url("/ops")
    check(page)
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", name="Failed jobs")).to_have_count(0)


def test_the_status_page_shows_the_use_of_models(page: Page, site: Site, begun: str) -> None:
    page.goto("/ops")
    models = page.locator("section", has=page.get_by_role("heading", name="Models"))
    expect(models.get_by_role("table")).to_contain_text("embedded/script")
    expect(page.get_by_role("img", name="a day over thirty days")).to_be_visible()


def test_s17_search_results_are_marked_and_link_to_the_turn(page: Page, site: Site, begun: str) -> None:
    page.goto("/search")
    page.get_by_label("What was said").fill("walnut")
    page.keyboard.press("Enter")
    hit = page.locator(".hit").first
    expect(hit.locator("mark")).to_have_text("walnuts")
    assert (hit.locator("a").get_attribute("href") or "").startswith(f"{begun}?at=")


def test_s17_search_opens_an_old_turn(page: Page, site: Site, begun: str) -> None:
    lines = [json.dumps({"user_name": "Ana", "character_name": "Maren Oke", "chat_metadata": {}})]
    for number in range(130):
        by = {"name": "Ana", "is_user": True} if number % 2 else {"name": "Maren Oke", "is_user": False}
        lines.append(json.dumps({**by, "mes": f"Line {number} of the log." + (" A heron!" if number == 3 else "")}))
    answer = site.client.post(f"/characters/{site.host(begun)}/chats/import", content="\n".join(lines).encode())
    assert answer.status_code == 201, answer.text
    page.goto("/search?q=heron")
    page.locator(".hit a").first.click()
    found = page.locator(".turn-found")
    expect(found).to_contain_text("A heron!")
    expect(found).to_be_in_viewport()
    expect(found).to_be_focused()


def test_hostile_text_is_never_run_in_a_browser(page: Page, site: Site, begun: str) -> None:
    body = {"name": f"Eve {HOSTILE[0]}\u202e", "persona": ALL, "kickoff": ALL, "backstory": ALL, "traits": HOSTILE[:3]}
    character = site.ask("POST", "/characters", body)["id"]
    site.ask("PUT", f"/characters/{character}", {**body, "persona": "Other."})
    site.call(lambda: site.app.memory.add_many([NewMemory(ALL, character, f"memory:{character}", about=(HOSTILE[2],))]))
    site.say(begun, f"walnuts {ALL}", ALL)
    for path in ["/characters", f"/characters/{character}", f"/characters/{character}/edit",
                 f"/characters/{character}/kickoff", f"/memory?owner={character}",
                 f"/memory?owner={character}&q=press", f"/memory?owner={character}&view=graph", "/search?q=press",
                 f"/search?q={quote(HOSTILE[1])}", "/ops", "/settings"]:  # fmt: skip
        page.goto(path)
        page.wait_for_timeout(50)
        assert_nothing_runs(page)
    site.ask("POST", f"/characters/{character}/delete", {"confirm": body["name"]})


def test_the_palette_finds_chats_characters_and_messages(page: Page, site: Site, begun: str) -> None:
    page.goto("/ops")
    page.keyboard.press("ControlOrMeta+k")
    page.keyboard.type("maren")
    expect(page.locator("#palette-list")).to_contain_text("Character")
    expect(page.locator("#palette-list")).to_contain_text("Chat with Maren")
    page.locator("#palette input").fill("walnut")
    page.keyboard.press("Enter")
    expect(page).to_have_url("/search?q=walnut")


def test_s13_the_prompt_page_shows_tokens_and_parts(page: Page, site: Site, begun: str) -> None:
    reply = [turn for turn in site.ask("GET", f"{begun}/turns")["turns"] if not turn["by_person"]][-1]["id"]
    page.goto(f"{begun}/prompt/{reply}")
    expect(page.get_by_role("img", name="The prompt:")).to_be_visible()
    expect(page.get_by_text("Is the radio mended?").first).to_be_visible()
    check(page)


PAGES = [
    "/",
    "/characters",
    "/characters/new",
    "/settings",
    "/memory",
    "/memory?view=graph",
    "/ops",
    "/search?q=walnut",
]


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1280)])
def test_every_page_in_every_size_is_accessible(
    browser: Browser, site: Site, begun: str, theme: str, width: int
) -> None:
    context = browser.new_context(
        base_url=site.address,
        viewport={"width": width, "height": 900},
        color_scheme=theme,  # type: ignore[arg-type]
        reduced_motion="reduce",
        has_touch=width < 500,
    )
    watched = Watched(context)
    page = context.new_page()
    for path in [*PAGES, f"/characters/{site.host(begun)}"]:
        page.goto(path)
        check(page)
        if width < 500:
            small = page.evaluate(
                """[...document.querySelectorAll("main a, main button, main input:not([type=hidden]), main select")]
                  .filter((e) => e.checkVisibility() && !e.closest("p, dd, svg, .small, h2"))
                  .filter((e) => !["checkbox", "file"].includes(e.type))
                  .map((e) => [e.outerHTML.slice(0, 90), e.getBoundingClientRect().height]).filter(([, h]) => h < 36)"""
            )
            assert small == [], path
    context.close()
    assert watched.errors == []
