"""SillyTavern from npm on loopback with a chat of given length: time until its last 50 messages are on screen.

Its server runs from a separate folder with new data and the chat of its sample character. The time is measured like
ours: from the start of the navigation until 50 messages are laid out and the newest is visible, with a warm cache.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Error, Page

from bench.lib.browser import last_50_seen, seen_script
from bench.lib.peers import PeerMissing
from bench.lib.report import log, median

VERSION = "1.19.0"
_PATIENCE_S = 300
_HOME = Path(__file__).resolve().parents[2] / ".bench" / "sillytavern"
_CHARACTER = "default_Seraphina"
# A chat there has no address of its own: it is chosen from the recent ones, as soon as they are shown.
_PRESS = """(() => { const choose = () => {
    const recent = document.querySelector("#chat .recentChat");
    if (recent) recent.click(); else requestAnimationFrame(choose);
}; requestAnimationFrame(choose); })();"""
_SENTENCE = "The lamp turns once more, and the rain shows for a moment like wire against the dark of the sea. "


def open_chat_in_sillytavern(browser: Browser, folder: Path, messages: int, rounds: int = 3) -> float:
    """Milliseconds, the median of a few rounds. Raises `PeerMissing` where it cannot be run."""
    with _served(_installed(), folder) as address:
        _write_chat(address, folder / "data" / "default-user", messages)
        log(f"SillyTavern {VERSION} is up, with a chat of {messages:,} messages.")
        context = browser.new_context()
        page = context.new_page()
        page.set_default_timeout(_PATIENCE_S * 1_000)
        try:
            page.goto(address)
            page.wait_for_function("() => window.SillyTavern?.getContext()?.characters?.length")
            page.wait_for_timeout(3_000)  # it goes on loading, and keeping files, after it looks ready
            page.add_init_script(_PRESS + seen_script("#chat .mes"))
            taken = [_open(page, address) for _ in range(rounds)]
        except Error as error:
            raise PeerMissing(f"its page did not open the chat: {error.message.splitlines()[0]}") from error
        finally:
            context.close()
    return median(taken)


def _open(page: Page, address: str) -> float:
    page.goto(address, wait_until="commit")
    return last_50_seen(page)


@contextmanager
def served_sillytavern(folder: Path) -> Iterator[str]:
    """The address of a SillyTavern with new data in `folder/data`. Raises `PeerMissing` where it cannot be run."""
    with _served(_installed(), folder) as address:
        yield address


def _installed() -> Path:
    package = _HOME / "node_modules" / "sillytavern"
    if not (_HOME / f".done-{VERSION}").exists():
        npm = shutil.which("npm")
        if npm is None:
            raise PeerMissing("npm is not installed")
        _HOME.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", f"sillytavern@{VERSION}", "--no-audit", "--no-fund", "--silent"]
        done = subprocess.run(command, cwd=_HOME, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerMissing("npm could not install it")
        (_HOME / f".done-{VERSION}").touch()
    return package


@contextmanager
def _served(package: Path, folder: Path) -> Iterator[str]:
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    command = ["node", "server.js", "--port", str(port), "--dataRoot", str((folder / "data").resolve()),
               "--configPath", str((folder / "config.yaml").resolve()), "--browserLaunchEnabled", "false",
               "--disableCsrf", "true"]  # fmt: skip
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=package, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                httpx.get(address, timeout=30)
                break
            except httpx.HTTPError as error:
                if process.poll() is not None or time.monotonic() > until:
                    raise PeerMissing("its server did not come up") from error
                time.sleep(0.25)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _write_chat(address: str, user: Path, messages: int) -> None:
    settings = json.loads((user / "settings.json").read_text(encoding="utf-8"))
    (user / "settings.json").write_text(json.dumps({**settings, "firstRun": False}), encoding="utf-8")
    found = httpx.post(f"{address}/api/characters/all", json={}, timeout=60).raise_for_status().json()
    character = next(one for one in found if one["avatar"] == f"{_CHARACTER}.png")
    lines: list[dict[str, object]] = [{"user_name": "Ana", "character_name": "Seraphina", "chat_metadata": {}}]
    for number in range(messages):
        said = {"is_user": number % 2 == 0, "is_system": False, "send_date": "November 15, 2026 9:00pm", "extra": {}}
        name = "Ana" if number % 2 == 0 else "Seraphina"
        lines.append({"name": name, "mes": f"{number}. {_SENTENCE * 2}", **said})
    place = user / "chats" / _CHARACTER
    place.mkdir(parents=True, exist_ok=True)
    text = "\n".join(json.dumps(line) for line in lines)
    (place / f"{character['chat']}.jsonl").write_text(text, encoding="utf-8")
