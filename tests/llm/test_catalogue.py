"""Roles, chains, providers and the settings they come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from coterie.base.config import load_config
from coterie.base.errors import ConfigError
from coterie.llm.errors import RoleUnset
from coterie.llm.messages import Priority
from coterie.llm.settings import (
    EMBEDDED,
    PRESETS,
    Catalogue,
    EmbeddedSettings,
    ModelDetails,
    ModelsSettings,
    Role,
    Target,
)


class _Root(BaseModel):
    models: ModelsSettings = ModelsSettings()


def from_toml(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> Catalogue:
    file = tmp_path / "config.toml"
    file.write_text(text)
    return Catalogue(load_config(_Root, file=file, environ=environ).settings.models)


def chain(catalogue: Catalogue, role: Role, task: str | None = None) -> list[str]:
    return [str(target) for target in catalogue.chain(role, task)]


def test_without_a_key_the_embedded_model_serves_all_roles() -> None:
    catalogue = Catalogue(ModelsSettings())
    for role in Role:
        assert catalogue.chain(role) == (EMBEDDED,)


def test_with_a_key_featherless_uses_its_default_models() -> None:
    catalogue = Catalogue(ModelsSettings.model_validate({"api_key": "key-number-one"}))
    assert chain(catalogue, Role.NARRATIVE) == ["featherless/dphn/Dolphin-Mistral-24B-Venice-Edition"]
    assert chain(catalogue, Role.CLASSIFIER) == [
        "featherless/NousResearch/Hermes-3-Llama-3.1-8B",
        "featherless/cognitivecomputations/dolphin-2.9.4-llama3-8b",
        "featherless/mlabonne/Meta-Llama-3.1-8B-Instruct-abliterated",
    ]
    assert catalogue.spec("featherless").base_url == "https://api.featherless.ai/v1"


def test_the_short_settings(tmp_path: Path) -> None:
    catalogue = from_toml(
        tmp_path,
        """
        [models]
        provider = "ollama"
        base_url = "http://127.0.0.1:9999/v1"
        narrative_model = "big"
        classifier_model = "small"
        classifier_fallbacks = ["other"]
        """,
    )
    assert chain(catalogue, Role.NARRATIVE) == ["ollama/big"]
    assert chain(catalogue, Role.CLASSIFIER) == ["ollama/small", "ollama/other"]
    assert chain(catalogue, Role.WORKER) == ["ollama/big"]
    assert chain(catalogue, Role.CORTEX) == ["ollama/small", "ollama/other"]
    assert catalogue.spec("ollama").base_url == "http://127.0.0.1:9999/v1"


def test_roles_tasks_providers_and_details(tmp_path: Path) -> None:
    catalogue = from_toml(
        tmp_path,
        """
        [models.providers.mine]
        base_url = "https://models.example/v1"
        api_key = "env:MY_KEY"
        [models.roles]
        narrative = ["mine/a/b", "embedded/smollm2"]
        [models.tasks]
        coding = "mine/coder"
        [models.details."mine/a/b"]
        context = 32768
        """,
        {"MY_KEY": "key-number-two"},
    )
    assert chain(catalogue, Role.NARRATIVE) == ["mine/a/b", "embedded/smollm2"]
    assert chain(catalogue, Role.WORKER, "coding") == ["mine/coder"]
    assert chain(catalogue, Role.WORKER, "unknown task") == ["mine/a/b", "embedded/smollm2"]
    assert catalogue.details(Target.parse("mine/a/b")).context == 32768
    assert catalogue.details(EMBEDDED).context == 4096
    key = catalogue.spec("mine").api_key
    assert key is not None
    assert key.get_secret_value() == "key-number-two"
    assert "key-number-two" not in repr(catalogue.spec("mine"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 80),
        ('[models.details."embedded/smollm2"]\nmax_story_words = 200', 200),
        ('[models.embedded]\nmodel = "/models/larger.gguf"', None),
        (
            '[models.embedded]\nmodel = "/models/larger.gguf"\n'
            '[models.details."embedded/smollm2"]\nmax_story_words = 200',
            200,
        ),
    ],
)
def test_only_the_bundled_model_has_a_word_limit_by_default(tmp_path: Path, text: str, words: int | None) -> None:
    catalogue = from_toml(tmp_path, text)
    assert catalogue.details(EMBEDDED).max_story_words == words
    assert catalogue.details(Target.parse("openai/gpt")).max_story_words is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[models.roles]\nnarrative = "unknown/x"', "'unknown' in 'unknown/x' is none"),
        ('[models]\nprovider = "fetherless"', "'fetherless' is none"),
        ("[models.providers.x]", "base_url"),
        ('[models.providers.x]\npreset = "opnai"', "known preset"),
        ('[models.roles]\nnarator = "openai/x"', "narator"),
        ("[models]\nclassifier_timeout_s = 0", "classifier_timeout_s"),
    ],
)
def test_invalid_settings_are_named_in_the_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_toml(tmp_path, text)


def test_an_unknown_provider_gets_a_suggestion() -> None:
    with pytest.raises(RoleUnset, match="Did you mean openai"):
        Catalogue(ModelsSettings()).spec("opnai")


def test_all_presets_exist() -> None:
    wanted = {"featherless", "openai", "anthropic", "openrouter", "ollama", "lmstudio", "llamacpp", "vllm"}
    wanted |= {"mistral", "groq", "together", "deepseek", "google"}
    assert wanted | {"openai-compatible", "embedded"} == set(PRESETS)


def test_narrative_calls_have_priority_over_background_roles() -> None:
    assert Role.NARRATIVE.priority is Priority.PERSON
    assert Role.CORTEX.priority is Priority.BACKGROUND


def test_l10_only_the_bundled_model_gets_a_script_and_no_analysis() -> None:
    bundled, own_file = (
        Catalogue(ModelsSettings()),
        Catalogue(ModelsSettings(embedded=EmbeddedSettings(model="x.gguf"))),
    )
    assert (bundled.details(EMBEDDED).prompt_form, bundled.supports_analysis()) == ("script", False)
    assert (own_file.details(EMBEDDED).prompt_form, own_file.supports_analysis()) == ("chat", True)
    assert (bundled.uses_bundled(Role.NARRATIVE), own_file.uses_bundled(Role.NARRATIVE)) == (True, False)
    hosted = Catalogue(ModelsSettings(roles={Role.CLASSIFIER: ("openai/gpt",)}))
    assert hosted.supports_analysis()
    assert hosted.supports_analysis(Role.COMPACTOR)
    chosen = ModelDetails(prompt_form="script", analysis=False)
    configured = Catalogue(
        ModelsSettings(details={"embedded/smollm2": chosen}, embedded=EmbeddedSettings(model="x.gguf"))
    )
    assert (configured.details(EMBEDDED).prompt_form, configured.supports_analysis()) == ("script", False)
