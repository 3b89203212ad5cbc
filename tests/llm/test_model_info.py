"""What providers tell about their models, in the shapes of the known ones, and what is known without them. L3"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.llm.discovery import key_address
from coterie.llm.model_info import (
    ModelInfo,
    ModelInfoStore,
    billions_of_parameters,
    bundled_context,
    parameters_in,
    read_model_list,
    writes_text,
)
from coterie.llm.router import Models
from coterie.llm.settings import Catalogue, ModelsSettings, Role, Target

OPENROUTER = {
    "id": "mistralai/mistral-nemo",
    "name": "Mistral: Nemo",
    "context_length": 131072,
    "pricing": {"prompt": "0.00000003", "completion": "0.00000007"},
    "architecture": {"input_modalities": ["text", "image"]},
    "supported_parameters": ["tools", "temperature"],
}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (OPENROUTER, {"context": 131072, "vision": True, "tools": True, "usd_per_million_in": 0.03}),
        ({"id": "llama-3.3-70b", "context_window": 131072, "owned_by": "Meta"}, {"context": 131072}),
        ({"id": "m", "max_model_len": 32768, "owned_by": "vllm"}, {"context": 32768}),
        (
            {"id": "m", "max_context_length": 32768, "capabilities": {"vision": True, "function_calling": False}},
            {"context": 32768, "vision": True, "tools": False},
        ),
        ({"id": "m", "max_context_length": 131072, "loaded_context_length": 4096, "type": "vlm"}, {"context": 4096}),
        ({"id": "m", "context_length": 8192, "pricing": {"input": 0.2, "output": 0.6}}, {"usd_per_million_out": 0.6}),
        ({"id": "models/gemini-2.5-flash"}, {"name": "gemini-2.5-flash"}),
        ({"id": "claude", "display_name": "Claude", "max_input_tokens": 200000}, {"context": 200000}),
        ({"id": "gpt-4o"}, {"context": None, "usd_per_million_in": None}),
        ({"id": "m", "context_length": -1, "pricing": {"prompt": "-1", "completion": "x"}}, {"context": None}),
        ({"id": "m", "context_length": True, "size": "big", "pricing": []}, {"context": None, "bytes": None}),
    ],
)
def test_l3_the_lists_of_known_providers_are_read(item: dict[str, Any], expected: dict[str, Any]) -> None:
    (info,) = read_model_list({"data": [item]})
    assert {name: getattr(info, name) for name in expected} == expected


def test_models_that_write_no_text_are_left_out() -> None:
    names = ["gpt-4o", "text-embedding-3-small", "whisper-1", "dall-e-3", "nomic-embed-text", "llama3.2"]
    listed = read_model_list({"data": [{"id": name} for name in names]})
    assert [info.name for info in listed if writes_text(info)] == ["gpt-4o", "llama3.2"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "data", "models", "pricing", "details", "capabilities", "context_length", "size"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_answer_of_a_provider_can_be_read(body: object) -> None:
    for info in read_model_list(body):
        assert info.name
        assert info.context is None or info.context > 0


def test_l3_the_context_comes_from_the_settings_then_the_provider_then_the_bundled_list(tmp_path: Path) -> None:
    store = ModelInfoStore(tmp_path / "known.json")
    store.remember("openai", [ModelInfo(name="gpt-4o", context=99_000, usd_per_million_in=1, usd_per_million_out=2)])
    again = ModelInfoStore(tmp_path / "known.json")  # after a restart
    settings = ModelsSettings.model_validate({"details": {"openai/gpt-4o-mini": {"context": 5_000}}})
    catalogue = Catalogue(settings, again)
    known = {name: catalogue.details(Target("openai", name)).context for name in ("gpt-4o", "gpt-4o-mini", "gpt-4.1")}
    assert known["gpt-4o"] == 99_000
    assert known["gpt-4o-mini"] == 5_000
    assert known["gpt-4.1"] == bundled_context("openai", "gpt-4.1")
    assert (bundled_context("openai", "gpt-4.1") or 0) > 100_000
    assert [catalogue.context_origin(Target("openai", name)) for name in known] == ["provider", "settings", "bundled"]
    unknown = Target("openai", "a-model-of-nobody")
    assert (catalogue.details(unknown).context, catalogue.context_origin(unknown)) == (None, "unknown")
    assert Models(settings, info=again).ledger.prices.per_million(Target("openai", "gpt-4o")) == (1, 2)


def test_l3_a_damaged_file_of_known_models_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "known.json"
    for text in ("", "[]", "{", '{"a/b": {"context": "x"}}'):
        file.write_text(text)
        assert ModelInfoStore(file).get("a/b") is None


def test_one_default_model_serves_every_role() -> None:
    catalogue = Catalogue(ModelsSettings.model_validate({"default": "ollama/a", "roles": {"classifier": "ollama/b"}}))
    chains = {role: str(catalogue.chain(role)[0]) for role in Role}
    small = {Role.CLASSIFIER, Role.COMPACTOR, Role.CORTEX}
    assert chains == {role: "ollama/b" if role in small else "ollama/a" for role in Role}


def test_sizes_are_read_from_names() -> None:
    assert parameters_in("Llama-3.2-3B-Instruct-Q4_K_M") == "3B"
    assert billions_of_parameters("mixtral-8x7b") == 56
    assert billions_of_parameters("smollm2:135m") == 0.135
    assert billions_of_parameters("gpt-4o") is None


def test_addresses_of_keys_are_compared_by_scheme_host_and_port() -> None:
    assert key_address("https://API.example.org:443/v1/") == key_address("https://api.example.org") != ""
    assert key_address("https://api.example.org:8443/v1") != key_address("https://api.example.org/v1")
    assert key_address("http://api.example.org/v1") != key_address("https://api.example.org/v1")
    for bad in ("", "example.org", "file:///etc/passwd", "https://", "http://[::1", "http://x:99999"):
        assert key_address(bad) == ""
