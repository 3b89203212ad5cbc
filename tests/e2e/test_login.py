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
    (cookie,) = page.context.cookies()
    assert (cookie.get("httpOnly"), cookie.get("sameSite")) == (True, "Strict")
    page.request.put("/you", data={"name": "Ana"}, headers={"Origin": page.url.rsplit("/", 1)[0]})
    page.goto("/settings#more")
    page.get_by_role("button", name="Log out of this browser").click()
    expect(page).to_have_url("/login")
    page.goto("/characters")
    expect(page).to_have_url("/login?next=/characters")
