"""Finds the messages: texts in templates, in the Python code of the page, in scripts, and in registries it shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jinja2 import nodes
from pydantic import BaseModel

from coterie.llm import PRESETS, curated_models
from coterie.ops import ROLE_LABELS
from coterie.settings import Settings
from coterie.surfaces.discord.setup import DiscordMessenger
from coterie.surfaces.matrix.setup import MatrixMessenger
from coterie.surfaces.telegram.setup import TelegramMessenger
from coterie.surfaces.web.settings.pages import setting_about, setting_label
from coterie.surfaces.web.shared.templates import template_environment
from tools.messages.scripts import Call, calls

ROOT = Path(__file__).parents[2]
WEB = ROOT / "src" / "coterie" / "surfaces" / "web"
NOT_TRANSLATED = ("home/templates/styleguide.html", "home/static/styleguide.js")
"""The style guide is for developers."""
_SINGULAR = ("_", "gettext", "N_")
_PLURAL = ("_n", "ngettext")
_WITH_CONTEXT = ("_p", "pgettext")


@dataclass(frozen=True)
class Message:
    path: str
    """The file, relative to the package of the page, or the name of a registry."""
    text: str
    plural: str | None = None
    context: str | None = None


class NotLiteral(ValueError):
    """A text that is looked up is not written where it is looked up."""


def messages() -> Iterator[Message]:
    """All messages, with one entry for each place."""
    yield from _of_templates()
    yield from _of_code()
    yield from _of_scripts()
    yield from _of_registries()


def _of_templates() -> Iterator[Message]:
    environment = template_environment()
    for path in _files("*.html"):
        name = path.relative_to(WEB).as_posix()
        tree = environment.parse(path.read_text(encoding="utf-8"))
        for call in tree.find_all(nodes.Call):
            if isinstance(call.node, nodes.Name):
                texts = [arg.value for arg in call.args if isinstance(arg, nodes.Const) and isinstance(arg.value, str)]
                yield from _message(name, call.node.name, texts)


def _of_code() -> Iterator[Message]:
    for path in _files("*.py"):
        name = path.relative_to(WEB).as_posix()
        if name == "shared/messages.py":  # defines them
            continue
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                yield from _message(name, call.func.id, texts)


def _of_scripts() -> Iterator[Message]:
    for path in _files("*.js"):
        name = path.relative_to(WEB).as_posix()
        if name == "shared/static/messages.js":
            continue
        for call in calls(path.read_text(encoding="utf-8")):
            yield _script_message(name, call)


def _script_message(name: str, call: Call) -> Message:
    if None in call.texts or len(call.texts) != (2 if call.function == "plural" else 1):
        raise NotLiteral(f"{name}, line {call.line}: {call.function}() needs its texts as literals.")
    texts = [text for text in call.texts if text is not None]
    return Message(name, texts[0], texts[1] if call.function == "plural" else None)


def _of_registries() -> Iterator[Message]:
    """Texts that other packages register, and that the page translates where it shows them."""
    for key, description in _settings(Settings):
        yield Message("settings", setting_label(key))
        if description:
            yield Message("settings", setting_about(description))
    for label, about in ROLE_LABELS.values():
        yield Message("models", label)
        yield Message("models", about)
    for preset in PRESETS.values():
        yield Message("models", preset.label)
    for model in curated_models():
        yield Message("models", model.good_at)
    for messenger in (DiscordMessenger, MatrixMessenger, TelegramMessenger):
        yield Message("messengers", messenger.about)
        for field in messenger.fields:
            yield Message("messengers", field.label)


def _settings(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Key and description of each setting."""
    for name, info in section.model_fields.items():
        inner = info.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _settings(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", info.description or ""


def _message(name: str, function: str, texts: list[str]) -> Iterator[Message]:
    """A call that only has a variable for its text looks up a text that is marked or registered elsewhere."""
    if function in _SINGULAR and texts and texts[0]:
        yield Message(name, texts[0])
    elif function in _PLURAL and len(texts) >= 2:
        yield Message(name, texts[0], texts[1])
    elif function in _WITH_CONTEXT and len(texts) >= 2:
        yield Message(name, texts[1], context=texts[0])


def _files(pattern: str) -> list[Path]:
    found = [path for path in WEB.rglob(pattern) if "vendor" not in path.parts]
    return sorted(path for path in found if path.relative_to(WEB).as_posix() not in NOT_TRANSLATED)
