"""P17 in a browser: a server that other machines can reach asks for its password first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from coterie.surfaces.web import server
from tests.e2e import conftest
from tests.e2e.axe import serious
from tests.e2e.conftest import Site

PASSWORD = "the sea keeps no diary"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    password = SecretStr(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD))
    monkeypatch.setattr(conftest, "create_web", lambda services: server.create_web(services, password))
    running = Site(tmp_path / "home")
    yield running
    running.close()


def test_p17_every_page_requires_the_password(page: Page) -> None:
    page.goto("/characters?x=1")
    expect(page).to_have_url("/login?next=/characters%3Fx%3D1")
    expect(page.get_by_label("Password")).to_be_focused()
    assert serious(page) == []
    page.keyboard.type("wrong password")
    page.keyboard.press("Enter")
    expect(page.locator(".field-error")).to_contain_text("That is not the password.")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page).to_have_url("/characters?x=1")
    assert page.evaluate("document.cookie") == ""
    cookies = page.context.cookies()
    assert len(cookies) == 2, "the session, and the mark of a browser that has logged in"
    assert {(cookie.get("httpOnly"), cookie.get("sameSite")) for cookie in cookies} == {(True, "Strict")}
    page.request.put("/you", data={"name": "Ana"}, headers={"Origin": page.url.rsplit("/", 1)[0]})
    page.goto("/settings#advanced")
    page.get_by_role("button", name="Log out of this browser").click()
    expect(page).to_have_url("/login")
    page.goto("/characters")
    expect(page).to_have_url("/login?next=/characters")


def test_a_protected_setting_asks_for_the_password(site: Site, page: Page) -> None:
    page.goto("/login?next=/settings")
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "/login" not in url)
    page.request.put("/you", data={"name": "Ana"}, headers={"Origin": page.url.rsplit("/", 1)[0]})
    page.goto("/characters")
    page.goto("/settings#advanced")
    page.locator("#advanced summary", has_text="Web server").click()
    field = page.get_by_label("Port", exact=True)
    field.fill("9001")
    save = page.get_by_role("button", name="Save Web server")
    save.click()
    dialog = page.get_by_role("dialog", name="Confirm with your password")
    expect(dialog).to_contain_text("server.port is protected")
    assert serious(page) == []
    page.keyboard.press("Escape")
    expect(page.locator("#advanced .field-error")).to_contain_text("coterie settings set server.port")
    save.click()
    dialog.get_by_label("Password").fill("not the password")
    page.keyboard.press("Enter")
    expect(dialog.locator(".field-error")).to_contain_text("That is not the password.")
    dialog.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_text("Saved. Takes effect after a restart.")).to_be_visible()
    assert "port = 9001" in site.app.paths.config.read_text()
