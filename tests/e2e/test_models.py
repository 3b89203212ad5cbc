"""Choosing a model in a browser: the step of the first start, and the settings. L1, L2, S10"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.axe import check
from tests.e2e.browser import window
from tests.e2e.server_process import Server
from tests.llm.test_downloads import tiny_gguf
from tests.model_server import FileServer, ModelServer, serving, serving_file

KEY = "sk-right-0123456789"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "home")
    yield running
    running.close()


@pytest.fixture
def provider() -> Iterator[ModelServer]:
    with serving(ModelServer()) as started:
        yield started


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    context = window(browser, server.address, 1280, 900, "light")
    context.set_default_timeout(30_000)
    errors: list[str] = []
    opened = context.new_page()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []


def connect(page: Page, base_url: str, key: str) -> None:
    page.get_by_label("Provider", exact=True).select_option("openai-compatible")
    page.get_by_label("Address", exact=True).fill(base_url)
    page.get_by_label("Key", exact=True).fill(key)
    page.get_by_role("button", name="List models").click()


def test_s10_a_newcomer_connects_a_provider_by_the_page_only(page: Page, server: Server, provider: ModelServer) -> None:
    page.goto("/")
    page.get_by_label("Name").fill("Ana")
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url("**/settings/models?welcome")
    expect(page.get_by_role("heading", name="Choose a model")).to_be_visible()
    expect(page.get_by_role("link", name="Continue with the demo model")).to_be_visible()
    expect(page.locator("#models-servers")).not_to_contain_text("Looking for")
    check(page)

    host = provider.address.removeprefix("http://")
    connect(page, provider.base_url, "sk-wrong-9876543210")
    status = page.locator("[data-connect-status]")
    expect(status).to_contain_text(f"{host} does not accept this key.")
    expect(page.get_by_label("Key", exact=True)).to_have_attribute("aria-invalid", "true")
    check(page)

    connect(page, provider.base_url, KEY)
    expect(status).to_contain_text("The key works. 2 models to choose from.")
    page.get_by_label("Model", exact=True).fill("large-70b")
    expect(page.locator("[data-model-hint]")).to_contain_text("64,000 tokens of context")
    page.get_by_role("button", name="Test and use", exact=True).click()
    expect(page.locator("[data-choose-status]")).to_contain_text("Saved and in use.")
    expect(page.locator(".models-now")).to_contain_text("large-70b")  # without a reload
    expect(page.get_by_label("Key", exact=True)).to_have_value("")
    check(page)
    page.get_by_role("link", name="Continue", exact=True).click()
    page.wait_for_url("**/characters/new")
    assert KEY not in (server.home / "config.toml").read_text()
    assert KEY not in server.logs.read_text()


def test_failures_are_sentences_at_their_place(page: Page, server: Server, provider: ModelServer) -> None:
    server.client.put("/you", json={"name": "Ana"})
    page.goto("/settings/models")
    status = page.locator("[data-connect-status]")
    provider.models = []
    connect(page, provider.base_url, KEY)
    expect(status).to_contain_text("lists no models. Load one there, then try again.")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    connect(page, f"http://127.0.0.1:{port}/v1", KEY)
    expect(status).to_contain_text(f"does not answer at http://127.0.0.1:{port}.")
    page.get_by_label("Provider", exact=True).select_option("openai")
    page.get_by_label("Key", exact=True).fill("")
    page.get_by_role("button", name="List models").click()
    expect(status).to_contain_text("OpenAI needs a key.")
    check(page)


def test_l1_a_model_is_downloaded_with_progress_and_cancelled(page: Page, server: Server) -> None:
    server.client.put("/you", json={"name": "Ana"})
    file = FileServer(tiny_gguf(60_000_000))
    file.slow_s = 0.02
    with serving_file(file):
        page.goto("/settings#models")
        page.get_by_text("Another GGUF file").click()
        page.get_by_label("Web address of a GGUF file").fill(file.url)
        page.locator("form[data-download-url]").get_by_role("button", name="Download").click()
        item = page.locator("[data-downloading=other]")
        expect(item).to_contain_text("left")
        expect(item).to_contain_text("MB/s")
        check(page)
        page.get_by_role("button", name="Cancel the download of other").click()
        expect(item).to_have_count(0)
        file.slow_s = 0
        page.locator("form[data-download-url]").get_by_role("button", name="Download").click()
        expect(item).to_contain_text("Downloaded, checked and in use.")
        expect(page.locator(".models-now")).to_contain_text("other")
    page.reload()
    expect(page.locator(".models-now")).to_contain_text("other")


def test_l5_an_instruction_is_shown_changed_and_reset(page: Page, server: Server) -> None:
    server.client.put("/you", json={"name": "Ana"})
    page.goto("/settings/models")
    page.get_by_text("Instructions to models").click()
    page.get_by_label("Instruction", exact=True).select_option("story")
    text = page.get_by_label("Text", exact=True)
    expect(text).to_have_value("You write only what {name} says and does, in prose, never what {people} does.")
    expect(page.locator("#f-prompt-hint")).to_contain_text("Built in.")
    text.fill("Write as {name}, in verse.")
    page.locator("[data-save-prompt]").click()
    expect(page.locator("[data-prompt-status]")).to_contain_text("Saved. The next call uses it.")
    assert (server.home / "shared" / "prompts" / "story.md").read_text() == "Write as {name}, in verse.\n"
    check(page)
    page.locator("[data-reset-prompt]").click()
    expect(page.locator("[data-prompt-status]")).to_contain_text("The built-in text is used again.")
    expect(text).to_have_value("You write only what {name} says and does, in prose, never what {people} does.")
    page.get_by_text("Embedding model for memories").click()
    page.get_by_label("Method").select_option("provider")
    page.get_by_role("button", name="Test and use the embedding model").click()
    expect(page.locator("[data-embedder-status]")).to_contain_text("needs a provider and a name.")
    check(page)
