"""What the page may change is declared by each setting, and checked in one place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from coterie.base.config import ChangeRule, declared_rule, is_protected
from coterie.base.errors import ConfirmationNeeded
from coterie.base.paths import Paths
from coterie.characters import OWNER
from coterie.ops.settings_editor import BadSetting, SettingsEditor
from coterie.settings import Settings, check_settings_change, load_settings, write_example_config

PROTECTED = {
    "server.host",
    "server.port",
    "server.password",
    "server.trusted_proxies",
    "models.embedded.model",
    "models.record",
    "models.replay",
    "crowd.stream_addresses",
    "crowd.bus",
    "desk.sandbox",
    "desk.commands_memory_mb",
    "desk.commands_at_once",
    "desk.workspace_mb",
    "desk.workspace_files",
    "twitch.url",
    "twitch.account",
    "twitch.token",
    "desk.command_memory_mb",
    "desk.command_processes",
    "desk.command_file_mb",
    "desk.tool_servers",
    *(f"desk.tool_servers.NAME.{name}" for name in ("command", "url", "env", "headers", "without_asking", "timeout_s")),
    "surfaces.guest_modes",
    "webhook.secret",
    "webhook.callbacks",
    "webhook.callback_secret",
    "api.key",
    "matrix.homeserver",
    "matrix.user",
    "matrix.password",
    "matrix.owner",
    "matrix.encrypted",
    "telegram.token",
    "telegram.api_url",
    "telegram.webhook_url",
    "crowd.recogniser",
    "crowd.memory",
    "discord.token",
    "discord.api_url",
    "matrix.access_token",
}
"""Every setting that runs something, opens something, reads or writes a path, or names who is the owner."""


def all_settings(model: type[BaseModel] = Settings, prefix: str = "") -> Iterator[tuple[str, ChangeRule | None]]:
    for name, info in model.model_fields.items():
        key, annotation = f"{prefix}{name}", info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from all_settings(annotation, f"{key}.")
            continue
        yield key, declared_rule(info)
        for inner in get_args(annotation):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from all_settings(inner, f"{key}.NAME.")


RULES = dict(all_settings())


@pytest.mark.parametrize("key", sorted(RULES))
def test_every_setting_declares_where_it_may_be_changed(key: str) -> None:
    assert RULES[key] is not None, f"declare {key} as PageSetting or ProtectedSetting"


def test_the_protected_settings_are_those_that_were_reviewed() -> None:
    assert {key for key, rule in RULES.items() if rule is ChangeRule.PROTECTED} == PROTECTED


def test_a_setting_that_declares_nothing_is_protected() -> None:
    class Careless(Settings):
        new_command: str = ""

    assert is_protected(Careless, ("new_command",))
    assert is_protected(Careless, ("desk", "tool_servers", "x", "command"))
    assert is_protected(Careless, ("no", "such", "setting"))
    assert not is_protected(Careless, ("story", "retrieval_k"))


@pytest.fixture
def home(tmp_path: Path) -> Paths:
    home = Paths.locate({"COTERIE_HOME": str(tmp_path)})
    write_example_config(home)
    return home


def editor_of(home: Paths, environ: dict[str, str] | None = None) -> SettingsEditor:
    def read() -> Any:
        return load_settings(home, environ or {})

    return SettingsEditor(
        read().settings, home.config, read, lambda: write_example_config(home), check_change=check_settings_change
    )


@pytest.mark.parametrize("key", sorted(PROTECTED))
@pytest.mark.parametrize("value", ["x", 1, ["/bin/sh", "-c", "id"], None, "off", "0.0.0.0", "env:HOME", True])
def test_no_value_of_a_protected_setting_is_accepted_without_a_confirmation(home: Paths, key: str, value: Any) -> None:
    before = home.config.read_text()
    with pytest.raises((ConfirmationNeeded, BadSetting)) as refused:
        editor_of(home).change({"story.retrieval_k": 2, key: value})
    assert home.config.read_text() == before
    if isinstance(refused.value, ConfirmationNeeded):
        assert f"coterie settings set {key} VALUE" in refused.value.fix and "config.toml" in refused.value.fix


@pytest.mark.parametrize("key", sorted(key for key, rule in RULES.items() if rule is ChangeRule.PAGE))
@pytest.mark.parametrize("value", ["env:PATH", "secret:matrix", ["x", "env:PATH"], [{"character": "secret:matrix"}]])
def test_a_reference_is_refused_in_every_setting(home: Paths, key: str, value: Any) -> None:
    before = home.config.read_text()
    with pytest.raises((ConfirmationNeeded, BadSetting)) as refused:
        editor_of(home, {"PATH": "/a/path/nobody/else/has"}).change({key: value})
    assert home.config.read_text() == before
    assert "/a/path/nobody/else/has" not in str(refused.value)


@pytest.mark.parametrize("key", sorted(RULES))
@pytest.mark.parametrize("value", ["env:PATH", "secret:matrix", ["x", "env:PATH"], {"user": ["secret:matrix"]}])
def test_a_reference_is_refused_in_every_setting_that_a_request_writes_through_coterie(
    home: Paths, key: str, value: Any
) -> None:
    before = home.config.read_text()
    editor = editor_of(home, {"PATH": "/a/path/nobody/else/has"})
    with pytest.raises(ConfirmationNeeded, match="reference"):
        editor.write({("story", "retrieval_k"): 3, tuple(key.split(".")): value}, references=["secret:another"])
    assert home.config.read_text() == before


def test_a_reference_to_a_secret_that_was_stored_for_the_change_is_written(home: Paths) -> None:
    editor_of(home, {"TOKEN": "t"}).write({("telegram", "token"): "env:TOKEN"}, references=["env:TOKEN"])
    assert 'token = "env:TOKEN"' in home.config.read_text()


def test_with_a_confirmation_a_protected_setting_is_changed(home: Paths) -> None:
    editor = editor_of(home, {"KEY": "a-model-key"})
    editor.change({"desk.sandbox": "off", "models.api_key": "env:KEY"}, confirmed=True)
    settings = load_settings(home, {"KEY": "a-model-key"}).settings
    assert settings.desk.sandbox == "off" and settings.models.api_key is not None


def test_a_key_stays_with_its_address(home: Paths) -> None:
    home.config.write_text('[models]\nprovider = "openai"\napi_key = "env:KEY"\n')
    before = home.config.read_text()
    editor = editor_of(home, {"KEY": "a-model-key"})
    for changes in (
        {"models.base_url": "http://127.0.0.1:9/v1"},
        {"models.provider": "ollama"},
        {"models.provider": "mine", "models.providers.mine.base_url": "http://127.0.0.1:9/v1"},
        {"models.providers.openai.base_url": "http://127.0.0.1:9/v1"},
    ):
        with pytest.raises(ConfirmationNeeded, match=r"given for https://api.openai.com:443"):
            editor.change(changes)
        assert home.config.read_text() == before
    editor.change({"models.providers.mine.base_url": "http://127.0.0.1:9/v1"})
    editor.change({"models.base_url": "http://127.0.0.1:9/v1"}, confirmed=True)


def test_a_key_is_not_given_to_another_provider_by_steps(home: Paths) -> None:
    home.config.write_text('[models]\nprovider = "openai"\napi_key = "env:KEY"\n')
    editor = editor_of(home, {"KEY": "a-model-key"})
    editor.change({"models.api_key": None})
    editor.change({"models.base_url": "http://127.0.0.1:9/v1"})
    with pytest.raises(ConfirmationNeeded):
        editor.change({"models.api_key": "env:KEY"})


@pytest.mark.parametrize("mode", ["desk", "remote", "draft"])
@pytest.mark.parametrize("rule", [{}, {"surface": "telegram"}, {"person": "ann"}, {"room": "1", "character": "Mara"}])
def test_a_binding_does_not_open_a_mode_to_other_people(home: Paths, mode: str, rule: dict[str, str]) -> None:
    opened = [{**rule, "mode": mode}]
    with pytest.raises(ConfirmationNeeded, match=f"the mode {mode}"):
        editor_of(home).change({"surfaces.bindings": opened})
    editor_of(home).change({"surfaces.bindings": [{**rule, "character": "Mara", "mode": "story"}]})
    editor_of(home).change({"surfaces.bindings": [{"mode": mode, "person": OWNER}]})
    editor_of(home).change({"surfaces.bindings": opened}, confirmed=True)
    editor_of(home).change({"surfaces.bindings": [*opened, {"character": "Mara"}]})
    with pytest.raises(ConfirmationNeeded):
        editor_of(home).change({"surfaces.bindings": [{"mode": mode, "server": "another"}]})
    editor_of(home).change({"surfaces.guest_modes": [mode]}, confirmed=True)
    editor_of(home).change({"surfaces.bindings": [{"mode": mode, "server": "another"}]})
