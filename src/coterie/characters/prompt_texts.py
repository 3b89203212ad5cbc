"""The instructions that Coterie gives to models, each of which its owner can replace.

A text is read at every call: from the character's folder (`prompts/NAME.md`), else from the shared one, else it is the
built-in one. What protects people, such as the rule about untrusted text, is not part of them and always added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coterie.base.errors import ConfigError, ReadOnly
from coterie.base.paths import write_atomic
from coterie.base.redaction import redact

_MAX_CHARS = 32_000
_FIELD = re.compile(r"\{(\w+)\}")

PromptOrigin = Literal["character", "shared", "built-in"]


@dataclass(frozen=True)
class PromptText:
    """One instruction: its name is the name of its file."""

    name: str
    label: str
    about: str
    built_in: str

    @property
    def fields(self) -> tuple[str, ...]:
        """Words in braces that are replaced, such as {name}."""
        return tuple(dict.fromkeys(_FIELD.findall(self.built_in)))


_declared: dict[str, PromptText] = {}


def declare_prompt(name: str, label: str, about: str, built_in: str) -> PromptText:
    """Declare an instruction, so that it can be shown and replaced."""
    prompt = _declared[name] = PromptText(name, label, about, built_in)
    return prompt


def declared_prompts() -> Iterable[PromptText]:
    return sorted(_declared.values(), key=lambda prompt: prompt.label)


def find_prompt(name: str) -> PromptText:
    if name not in _declared:
        raise ConfigError(f"There is no prompt called {name[:80]}.", f"Known: {', '.join(sorted(_declared))}.")
    return _declared[name]


class PromptTexts:
    """The texts in a folder per character and in a shared one; without folders, the built-in texts."""

    def __init__(self, character: Path | None = None, shared: Path | None = None) -> None:
        self._folders: tuple[tuple[PromptOrigin, Path | None], ...] = (("character", character), ("shared", shared))

    def read(self, prompt: PromptText) -> tuple[str, PromptOrigin]:
        for origin, folder in self._folders:
            if folder is None:
                continue
            try:
                text = (folder / "prompts" / f"{prompt.name}.md").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if text.strip():
                return redact(text[:_MAX_CHARS].strip()), origin  # it is logged with the prompt
        return prompt.built_in, "built-in"

    def text(self, prompt: PromptText, **values: str) -> str:
        """The text with its fields filled in; other braces stay as they are."""
        return _FIELD.sub(lambda found: values.get(found[1], found[0]), self.read(prompt)[0])

    def save(self, prompt: PromptText, text: str) -> None:
        """Write the text to the character's folder if there is one, else to the shared one."""
        if not text.strip():
            raise ConfigError("An empty prompt would leave the model without instructions.", "Write one, or reset it.")
        file = self._file(prompt)
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomic(file, f"{text.strip()}\n".encode())
        except OSError as error:
            raise ReadOnly(f"{file} cannot be written ({error.strerror}).", "Check that folder.") from error

    def reset(self, prompt: PromptText) -> None:
        self._file(prompt).unlink(missing_ok=True)

    def _file(self, prompt: PromptText) -> Path:
        folder = next((folder for _, folder in self._folders if folder is not None), None)
        if folder is None:
            raise ConfigError("Prompts cannot be stored here.", "Use an instance with a data folder.")
        return folder / "prompts" / f"{prompt.name}.md"
