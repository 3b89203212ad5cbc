"""Pictures in a browser: in messages, as expressions, in the gallery, and behind a place."""

from __future__ import annotations

import struct

from playwright.sync_api import FilePayload, Page, expect

from coterie.llm.settings import Role
from tests.e2e import axe
from tests.e2e.conftest import Site
from tests.e2e.test_chat import quiet, turns
from tests.e2e.test_chat_list import picture


def png(width: int, height: int, name: str = "boat.png") -> FilePayload:
    return {"name": name, "mimeType": "image/png", "buffer": picture(width, height)}


def test_l6_pictures_are_added_kept_over_a_reload_sent_and_described(site: Site, page: Page) -> None:
    site.script.replies += ["A brown field.", "A reply."]  # the vision model is asked first
    site.app.models.settings.roles[Role.VISION] = ("embedded/vision",)
    chat = site.begin()
    page.goto(chat)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Add a picture").click()
    chooser.value.set_files([png(2000, 1000), png(30, 20)])
    thumbs = page.locator("#message-pictures").get_by_role("button")
    expect(thumbs).to_have_count(2)
    axe.check(page)
    page.reload()
    expect(thumbs).to_have_count(2)
    thumbs.nth(1).click()
    expect(thumbs).to_have_count(1)
    page.get_by_role("button", name="Send", exact=True).click()
    expect(thumbs).to_have_count(0)
    shown = turns(page).nth(-2).locator(".turn-pictures img")
    expect(shown).to_be_visible()
    expect(shown).to_have_attribute("alt", "A brown field.")
    quiet(page)
    assert "*shows a picture: A brown field.*" in site.script.prompt()
    data = site.client.get(str(shown.get_attribute("src"))).content
    assert struct.unpack(">II", data[16:24]) == (1568, 784), "large pictures are made smaller"
    axe.check(page)


def test_l6_a_picture_is_pasted(site: Site, page: Page) -> None:
    chat = site.begin()
    page.goto(chat)
    quiet(page)
    page.get_by_label("Say something").evaluate(
        """async (field) => {
            const canvas = new OffscreenCanvas(8, 8);
            canvas.getContext("2d").fillRect(0, 0, 8, 8);
            const data = new DataTransfer();
            data.items.add(new File([await canvas.convertToBlob()], "p.png", { type: "image/png" }));
            field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator("#message-pictures").get_by_role("button")).to_have_count(1)
    page.get_by_label("Say something").fill("Look at that.")
    page.keyboard.press("Enter")
    expect(turns(page).locator(".turn-pictures img")).to_be_visible()


def test_an_expression_follows_the_mood_and_a_background_the_place(site: Site, page: Page) -> None:
    chat = site.begin()
    host = site.host(chat)
    page.goto(f"/characters/{host}")
    page.get_by_role("tab", name="Pictures").click()
    for label in ("joy", "anger"):
        page.get_by_label("Expression", exact=True).fill(label)
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name="Choose its picture").click()
        with page.expect_navigation():
            chooser.value.set_files(png(60 if label == "joy" else 61, 60))
        page.get_by_role("tab", name="Pictures").click()
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Add pictures", exact=True).click()
    with page.expect_navigation():
        chooser.value.set_files(png(70, 70, "At sea.png"))
    page.get_by_role("tab", name="Pictures").click()
    expect(page.get_by_role("group", name="Gallery").get_by_role("img", name="at sea")).to_be_visible()
    page.get_by_role("button", name="Remove at sea").click()
    expect(page.get_by_role("group", name="Gallery").get_by_role("img")).to_have_count(0)
    with page.expect_navigation():
        page.locator("#toasts").get_by_role("button", name="Undo").click()
    page.get_by_role("tab", name="Pictures").click()
    expect(page.get_by_role("group", name="Gallery").get_by_role("img")).to_have_count(1)
    axe.check(page)

    page.goto(chat)
    quiet(page)
    cast = page.locator("#scenery .scenery-cast img")
    expect(cast).to_have_count(0)
    name = site.ask("GET", chat)["host"]["name"]
    site.script.shapes["TurnAnalysis"] = {"activities": [{"who": name, "mood": "furious"}]}
    first = site.say(chat, "I broke the lamp.", "You what?")
    expect(cast).to_have_attribute("alt", f"{name}, anger")
    site.script.shapes["TurnAnalysis"] = {"activities": [{"who": name, "mood": "glad"}]}
    site.say(chat, "No, I did not.", "Good.")
    expect(cast).to_have_attribute("alt", f"{name}, joy")
    site.ask("POST", f"{chat}/rewind", {"turn": first["reply"]})
    expect(cast).to_have_attribute("alt", f"{name}, anger")

    page.keyboard.press("d")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Choose a background").click()
    chooser.value.set_files(png(300, 200))
    behind = page.locator("#scenery .scenery-place")
    expect(behind).to_have_attribute("alt", "the lamp room")
    axe.check(page)
    site.script.shapes = {}
    site.say(chat, "We walk to the harbour.", "The boats are in.")
    expect(behind).to_have_count(0)
    site.say(chat, "We walk back to the lamp room.", "Up the stairs.")
    expect(behind).to_have_count(1)
    page.get_by_role("button", name="Remove the background").click()
    expect(behind).to_have_count(0)
