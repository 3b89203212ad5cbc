from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coterie.base.paths import Paths
from coterie.ops.settings_editor import BadSetting, Setting, SettingsEditor
from coterie.settings import LIVE_SETTINGS, load_settings, write_example_config


@pytest.fixture
def home(tmp_path: Path) -> Paths:
    return Paths.locate({"COTERIE_HOME": str(tmp_path)})


def settings_editor(home: Paths, environ: dict[str, str] | None = None) -> SettingsEditor:
    def read() -> Any:
        return load_settings(home, environ or {})

    return SettingsEditor(read().settings, home.config, read, lambda: write_example_config(home))


def by_key(settings: list[Setting]) -> dict[str, Setting]:
    return {setting.key: setting for setting in settings}


def test_every_setting_is_listed_with_description_value_and_origin(home: Paths) -> None:
    write_example_config(home)
    home.config.write_text("[story]\nretrieval_k = 7\n")
    shown = by_key(settings_editor(home, {"COTERIE_SERVER__PORT": "9000"}).settings())
    k = shown["story.retrieval_k"]
    assert (k.value, k.default, k.origin, k.pending) == (7, 4, "config.toml line 2", False)
    assert k.about == "How many memories are recalled for a reply."
    assert shown["server.port"].origin == "environment variable COTERIE_SERVER__PORT"
    assert shown["story.ooc_marker"].origin == "default"


def test_a_change_keeps_comments_and_applies_at_the_next_start(home: Paths) -> None:
    write_example_config(home)
    home.config.write_text("# mine\n[story]\nretrieval_k = 7 # enough\n")
    editor = settings_editor(home)
    shown = by_key(editor.change({"story.retrieval_k": 2, "models.roles.narrative": "ollama/mistral"}))
    assert (shown["story.retrieval_k"].value, shown["story.retrieval_k"].pending) == (2, True)
    assert shown["models.roles"].value == {"narrative": ["ollama/mistral"]}
    assert "# mine" in home.config.read_text()
    assert load_settings(home, {}).settings.story.retrieval_k == 2
    back = by_key(editor.change({"story.retrieval_k": None}))["story.retrieval_k"]
    assert (back.value, back.origin) == (4, "default")


def test_live_settings_apply_at_once(home: Paths) -> None:
    write_example_config(home)
    running = load_settings(home, {}).settings.model_copy(deep=True)
    story, caps = running.story, running.models.caps
    editor = SettingsEditor(
        running, home.config, lambda: load_settings(home, {}), lambda: write_example_config(home), LIVE_SETTINGS
    )
    changes = {"story.retrieval_k": 2, "models.caps.usd_per_day": 1.5, "models.roles.narrative": "ollama/mistral"}
    shown = by_key(editor.change({**changes, "server.port": 8123}, confirmed=True))
    assert (story.retrieval_k, caps.usd_per_day) == (2, 1.5)
    assert running.models.roles["narrative"] == ("ollama/mistral",)  # type: ignore[index]
    assert [shown[key].pending for key in ("story.retrieval_k", "models.roles", "server.port")] == [False, False, True]
    assert [shown[key].live for key in ("story.retrieval_k", "models.roles", "server.port")] == [True, True, False]
    assert running.server.port == 8000
    assert load_settings(home, {}).settings.story is not story
    editor.change({"models.providers.mine.base_url": "http://127.0.0.1:9/v1"})
    assert running.models.providers["mine"].base_url == "http://127.0.0.1:9/v1"
    editor.change({"models.providers.mine": None})
    assert running.models.providers == {}


@pytest.mark.parametrize(
    "changes",
    [
        {"story.retrieval_q": 3},
        {"nothing": 3},
        {"story": {"retrieval_k": 3}},
        {"story.retrieval_k": "many"},
        {"story.retrieval_k": -1},
        {"story.retrieval_k.deep": 1},
        {"story.retrieval_k": 3, "models.roles.narrative": "nobody/x"},
        {"models.api_key": "sk-live-12345678"},
        {"models.providers.mine.api_key": "sk-live-12345678"},
        {"server.port": 1234},
        {"server.host": "\ud800"},
        {"models.roles.\ud800": "embedded/x"},
        {"models.roles.narrative": ["embedded/x", "\udfff"]},
        {"models.roles.narrative": ["embedded/x", None]},
        {"models.roles.": "embedded/x"},
        {"story.retrieval_k": 10**30},
        {"story.retrieval_k": float("nan")},
    ],
)
def test_an_invalid_change_changes_nothing(home: Paths, changes: dict[str, Any]) -> None:
    write_example_config(home)
    home.config.write_text(f'{home.config.read_text()}[server]\npassword = "a password that stays"\n')
    before = home.config.read_text()
    editor = settings_editor(home, {"COTERIE_SERVER__PORT": "9000"})
    with pytest.raises(BadSetting) as refused:
        editor.change(changes, confirmed=True)
    assert refused.value.fix
    assert "sk-live" not in str(refused.value)
    assert home.config.read_text() == before


def test_s29_a_key_is_never_shown(home: Paths) -> None:
    write_example_config(home)
    home.config.write_text(
        '[models]\napi_key = "env:KEY"\n[models.providers.mine]\npreset = "openai"\napi_key = "env:KEY"\n'
    )
    settings = settings_editor(home, {"KEY": "sk-very-secret-key"}).settings()
    assert by_key(settings)["models.api_key"].value is True
    assert by_key(settings)["models.providers"].value["mine"]["api_key"] is True
    assert "very-secret" not in repr(settings)


def test_an_invalid_file_shows_the_running_settings(home: Paths) -> None:
    write_example_config(home)
    editor = settings_editor(home)
    home.config.write_text("[story\n")
    assert by_key(editor.settings())["story.retrieval_k"].value == 4
    with pytest.raises(BadSetting):
        editor.change({"story.retrieval_k": 2})
