"""People on the settings page, in a browser. P3"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.axe import serious
from tests.e2e.conftest import Site


@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1280)])
def test_p3_a_person_is_invited_and_given_characters(page: Page, site: Site, theme: str, width: int) -> None:
    name = f"Bo ({theme})"
    site.begin()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
    page.goto("/settings#people")
    people = page.locator("#people")
    people.get_by_label("New person").fill(name)
    people.get_by_role("button", name="Invite").click()
    expect(people.locator("[data-code-result]")).to_contain_text(re.compile(r"/link [A-Z2-9]{5}-[A-Z2-9]{5}"))
    bo = people.locator("[data-person]").filter(has_text=name)
    expect(bo).to_contain_text("May not talk to any character yet")
    bo.get_by_text(f"Characters {name} may talk to").click()
    assert serious(page) == []
    bo.get_by_role("button", name="Everybody").click()
    expect(bo).to_contain_text("May talk to every character.")
    people.get_by_role("button", name="A code to link an account of " + name).click()
    expect(people.locator("[data-code-result]")).to_contain_text(f"{name}’s")
    assert serious(page) == []
