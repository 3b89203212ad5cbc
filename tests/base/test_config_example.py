"""The example configuration: uncommented, it loads to the defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, SecretStr

from coterie.base.config import Section, example_config, load_config
from coterie.settings import Settings


class Colours(Section):
    """How it looks.

    On two lines.
    """

    name: str = 'a "quoted" name — ü'
    """What it is called."""
    sizes: list[int] = Field(default_factory=lambda: [1, 2])
    wide: bool = True
    ratio: float = 0.5
    where: Path = Path("a/b")
    limit: int | None = None
    """At most."""
    key: SecretStr = SecretStr("")


class Model(Section):
    colours: Colours = Colours()


def uncomment(text: str) -> str:
    return re.sub(r"^# (\[[\w.]+\]|\w+ = .*)$", r"\1", text, flags=re.MULTILINE)


def example_keys(section: Section, prefix: str = "") -> Iterator[str]:
    """The keys of all settings with a default that is not None, which TOML cannot represent."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from list(example_keys(value, f"{prefix}{name}.")) or [f"{prefix}{name}"]
        elif value is not None and value != {}:
            yield f"{prefix}{name}"


def test_the_example_sets_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(example_config(Settings), encoding="utf-8")
    result = load_config(Settings, file=path)
    assert result.settings == Settings()
    assert not result.origins


def test_uncommented_it_loads_back_to_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for model in (Settings, Model):
        path.write_text(uncomment(example_config(model)), encoding="utf-8")
        result = load_config(model, file=path)
        assert result.settings == model()
        keys = {key for key, origin in result.origins.items() if origin != "default"}
        assert keys == set(example_keys(model()))


def test_the_example_describes_each_setting() -> None:
    text = example_config(Model)
    assert "# How it looks.\n#\n# On two lines.\n# [colours]" in re.sub(r" +\n", "\n", text)
    assert '# What it is called.\n# name = "a \\"quoted\\" name — ü"\n' in text
    assert '# At most.\n# # limit = "…"\n' in text


def test_every_setting_has_a_description() -> None:
    for section in Settings.model_fields.values():
        assert isinstance(section.annotation, type)
        assert issubclass(section.annotation, Section)
        assert section.annotation.__doc__
        for name, info in section.annotation.model_fields.items():
            assert info.description, name
