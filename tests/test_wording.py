"""Texts of the product are plain: no riddles in templates, scripts, help of commands, and messages.

`docs/glossary.md` lists the terms to use instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from coterie.cli import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "coterie"
INSTEAD = {
    r"nobody (thinks|works)": "No tasks are running",
    r"\blet .{1,40} go\b": "Remove …",
    r"\bcounts? from now\b": "Takes effect at once",
    r"\bput(s|ting)? back\b": "Restore",
    r"\bgo on\b|\bgoes on\b": "Continue",
    r"\bgo (to …|to \.\.\.|anywhere)": "Search or jump to…",
    r"\blight or dark\b": "Theme",
    r"\bworkshop\b": "Status & costs",
    r"\bletters of stories\b": "Story font",
    r"\bbehind the story\b": "Story details",
    r"\bwhoever\b|^answers: ": "Reply from: Auto",
    r"\bclose the scene\b|\bclosing a scene\b": "End scene",
    r"\bstart (its|their|his|her) life\b": "Reset character…",
    r"\bbegin a folder\b": "New project",
    r"\bnothing (waits|is waiting)\b": "No suggestions",
    r"\bwhy does it say\b": "Show origin",
    r"\bwhat goes on\b": "Activity",
    r"\bby itself\b": "automatically",
    r"\btimetable\b": "Schedule",
    r"\bfinds the words\b": "Text source",
    r"\bwork that waits\b": "Queued",
    r"\bgiven up\b|\bgave up\b": "Failed",
    r"\bthe house\b": "System",
    r"\bthere is nothing here\b": "Page not found",
    r"^(keep (everything|them|it|this))$": "Cancel",
    r"\btaken back\b": "removed",
    r"\bpardon": "Lift",
    r"\bparts one from\b": "Separate … with",
    r"\bgive it to nobody\b": "Keep it private",
    r"\bsomebody who is ready\b": "a ready-made character",
    r"\blook again\b": "Search again",
    r"\bnot met yet\b": "No chats yet",
    r"\b(told|tells|telling) (the|to|a|it|by)\b": "say what it is: said, sent, shown, reported",
    r"\battends to\b": "Focus",
    r"\bis about to answer\b": "is replying",
    r"\bluggage\b|\bhousehold\b|\berrand\b|\bpostman\b|\bswitchboard\b": "the established term",
    r"^needed$": "required",
}
"""Pattern → what to write."""
_NOT_TEXT = re.compile(r"\{[%#].*?[%#]\}|<(script|style)\b.*?</\1>", re.S)
_ATTRIBUTES = re.compile(r"""\b(?:aria-label|title|placeholder|alt)="([^"]*)\"""")
_LITERALS = re.compile(r'"((?:[^"\\\n]|\\.)*)"|\'((?:[^\'\\\n]|\\.)*)\'|`((?:[^`\\]|\\.)*)`')
_NOT_FOR_PEOPLE = (
    *("prompts", "small_model", "starter_characters", "turn_analysis.py", "embedded/script.py"),
    *("sqlite/database.py", "sqlite/migrations.py"),
)
"""Modules with instructions to models, words of characters, and statements for the database."""
_STORED = "<!-- Delete this line, and what stands below"
"""The beginning of files that are in people's folders already, which is compared with them."""


def templates() -> Iterator[tuple[str, str]]:
    for path in sorted((SOURCE / "surfaces" / "web").rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        for inside in re.findall(r"\{[{%](.*?)[}%]\}", text, re.S):
            yield from ((path.name, literal) for literal in literals(inside))
        yield from ((path.name, found) for found in _ATTRIBUTES.findall(text))
        yield from ((path.name, found.strip()) for found in re.split(r"<[^>]*>|\{\{.*?\}\}", _NOT_TEXT.sub("", text)))


def scripts() -> Iterator[tuple[str, str]]:
    for path in sorted((SOURCE / "surfaces" / "web").rglob("*.js")):
        if "vendor" not in path.parts and path.name != "codemirror.entry.js":
            code = re.sub(r"^\s*//.*$", "", path.read_text(encoding="utf-8"), flags=re.M)
            yield from ((path.name, literal) for literal in literals(code))


def literals(code: str) -> Iterator[str]:
    for groups in _LITERALS.findall(code):
        yield "".join(groups)


def messages() -> Iterator[tuple[str, str]]:
    """Every text in the code of Coterie that is not a docstring."""
    for path in sorted(SOURCE.rglob("*.py")):
        if any(name in path.as_posix() for name in _NOT_FOR_PEOPLE):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) and id(node) not in statements else None
            if isinstance(text, str) and not text.startswith(_STORED):
                yield str(path.relative_to(SOURCE)), text


def help_of_commands() -> Iterator[tuple[str, str]]:
    def walk(command: object, name: str) -> Iterator[tuple[str, str]]:
        for text in (getattr(command, "help", None), getattr(command, "short_help", None)):
            yield name, text or ""
        for parameter in getattr(command, "params", []):
            yield name, getattr(parameter, "help", None) or ""
        for child, below in getattr(command, "commands", {}).items():
            yield from walk(below, f"{name} {child}")

    for name, summary in COMMANDS.items():
        yield name, summary
        yield from walk(get_command(load_command(name)), f"coterie {name}")


def riddles(texts: Iterator[tuple[str, str]]) -> list[str]:
    found = []
    for where, text in texts:
        line = " ".join(text.split())
        for pattern, instead in INSTEAD.items():
            is_text = " " in line or line.istitle() or line == "needed"
            if is_text and re.search(pattern, line, re.I):
                found.append(f"{where}: {line[:160]!r}; write: {instead}")
    return found


@pytest.mark.parametrize("texts", [templates, scripts, messages, help_of_commands])
def test_texts_are_plain(texts: object) -> None:
    assert callable(texts)
    collected = list(texts())
    assert len(collected) > 50, "the texts are no longer found"
    assert riddles(iter(collected)) == []


@pytest.mark.parametrize(
    "text",
    ["Nobody thinks or works just now", "Let Flux the Cat go", "It counts from now on", "Put back …", "Light or dark"],
)
def test_a_riddle_is_found(text: str) -> None:
    assert riddles(iter([("here", text)]))
