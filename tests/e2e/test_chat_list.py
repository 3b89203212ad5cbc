"""S2, S17: organising chats, and speaking as a persona, in the browser."""

from __future__ import annotations

import re
import struct
import zlib

from playwright.sync_api import Page, expect

from tests.e2e import axe
from tests.e2e.conftest import Site


def test_a_chat_is_pinned_tagged_renamed_deleted_and_comes_back(site: Site, page: Page) -> None:
    chat = site.begin(title="Storm at the pier")
    page.goto("/chats")
    row = page.locator(f'[data-chat="{chat.removeprefix("/chats/")}"]')
    row.get_by_role("button", name="Organise Storm at the pier").click()
    page.get_by_role("menuitem", name="Pin to the top").click()
    expect(row.get_by_text("pinned")).to_be_visible()
    row.get_by_role("button", name="Organise").click()
    page.get_by_role("menuitem", name="Tags …").click()
    page.get_by_label("Tags").fill("sea, winter")
    page.get_by_role("button", name="Save").click()
    expect(row.get_by_text("winter")).to_be_visible()
    row.get_by_role("button", name="Organise").click()
    page.get_by_role("menuitem", name="Rename …").click()
    page.get_by_label("Title", exact=True).fill("Gale")
    page.get_by_role("button", name="Save").click()
    expect(row.get_by_role("link", name="Gale")).to_be_visible()
    axe.check(page)
    row.get_by_role("button", name="Organise").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(row).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    expect(row).to_be_visible()
    assert site.ask("GET", chat)["title"] == "Gale"
    page.get_by_label("Tag", exact=True).select_option("sea")
    expect(page).to_have_url(re.compile("tag=sea"))
    expect(row).to_be_visible()


def test_the_list_beside_a_chat_and_the_tree(site: Site, page: Page) -> None:
    other = site.begin(title="Another evening")
    chat = site.begin(title="This evening", greeting="Ahoy.")
    page.goto(chat)
    page.get_by_role("button", name="Other chats").click()
    expect(page.locator("#sidebar").get_by_role("link", name="Another evening").first).to_be_visible()
    page.get_by_label("Title, person or tag").fill("another")
    expect(page.locator("#sidebar").get_by_role("link", name="This evening")).to_have_count(0)
    page.locator(f'#sidebar a[href="{other}"]').click()
    expect(page).to_have_url(f"{site.address}{other}")
    page.goto(f"{chat}/tree")
    expect(page.get_by_role("heading", name="Forks and swipes")).to_be_visible()
    axe.check(page)


def test_a_persona_is_written_and_chosen(site: Site, page: Page) -> None:
    chat = site.begin()
    page.goto("/personas")
    page.get_by_role("button", name="New persona").click()
    page.locator("#name-new").fill("Kim")
    page.locator("#about-new").fill("A smuggler.")
    page.get_by_role("button", name="Create persona").click()
    expect(page.locator("summary", has_text="Kim")).to_be_visible()
    axe.check(page)
    page.goto(chat)
    page.get_by_role("button", name="More for this chat").click()
    page.get_by_role("menuitem", name="Speak as …").click()
    page.get_by_label("Persona").select_option("Kim")
    page.get_by_role("button", name="Speak as this").click()
    expect(page.locator("#composer")).to_be_visible()
    site.say(chat, "It is me.")
    assert "A smuggler." in site.script.prompt()
    page.reload()
    expect(page.locator(".turn-you")).to_contain_text("Kim")


def test_a_portrait_is_chosen_and_cropped(site: Site, page: Page) -> None:
    character = site.ask("POST", "/characters/ready/io")["id"]
    page.goto(f"/characters/{character}")
    page.get_by_role("button", name="More for").click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("menuitem", name="Change portrait").click()
    chooser.value.set_files({"name": "p.png", "mimeType": "image/png", "buffer": picture(300, 200)})
    page.get_by_label("Enlarge").fill("2")
    axe.check(page)
    with page.expect_response(lambda response: response.request.method != "GET" and "/picture" in response.url):
        page.get_by_role("button", name="Use picture").click()
    expect(page.locator(".character-head-portrait img")).to_be_visible()
    portrait = site.client.get(f"/characters/{character}/portrait").content
    assert struct.unpack(">II", portrait[16:24]) == (512, 512)
    exported = site.client.get(f"/characters/{character}/export?format=png").content
    assert struct.unpack(">II", exported[16:24]) == (512, 512)


def picture(width: int, height: int) -> bytes:
    """A PNG in one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x80\x40\x20" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
