"""placeholder"""

from __future__ import annotations
from pathlib import Path
from playwright.sync_api import Browser
from bench._peer import PeerMissing


def open_chat_in_sillytavern(browser: Browser, folder: Path, messages: int) -> float:
    raise PeerMissing("not yet")
