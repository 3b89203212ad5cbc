"""The generated pages and drawings: path in the repository, and the function that makes the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference.commands import commands_page
from tools.reference.events import events_page
from tools.reference.http import http_page
from tools.reference.message_diagram import message_diagram
from tools.reference.package_diagram import package_diagram
from tools.reference.settings import settings_page
from tools.reference.specification import specification_page

ROOT = Path(__file__).parents[2]

PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands_page,
    "docs/reference/settings.md": settings_page,
    "docs/reference/events.md": events_page,
    "docs/reference/http.md": http_page,
    "docs/specification.md": specification_page,
    "docs/img/packages.svg": package_diagram,
    "docs/img/message.svg": message_diagram,
}
"""Path in the repository → what makes its text."""
