"""Finding the system's Chromium, and saying how to get one."""

from __future__ import annotations

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str:
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise RuntimeError("The browser tests need Chromium: apt install chromium, or CHROMIUM=/path/to/it make test")
    return found
