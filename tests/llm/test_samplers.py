"""Sampler presets: resolution, what providers support, import from SillyTavern. L4"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.errors import ConfigError, CoterieError
from coterie.llm.hosted import real_requests
from coterie.llm.messages import OutputSchema, Prompt, ToolSpec
from coterie.llm.router import Models
from coterie.llm.samplers import (
    BUILT_IN,
    RESERVED_FIELDS,
    Sampler,
    import_sillytavern,
    resolve_sampler,
    supported_values,
)
from coterie.llm.settings import PRESETS, ModelsSettings, Role
from tests.model_server import ModelServer, serving


def test_l4_the_chat_goes_before_the_character_and_the_character_before_the_model() -> None:
    presets = {"own": Sampler(temperature=0.5, seed=7), "calm": Sampler(temperature=0.1)}
    found = resolve_sampler(presets, "creative", "own", "calm")
    assert (found.temperature, found.seed, found.min_p) == (0.1, 7, BUILT_IN["creative"].min_p)
    assert resolve_sampler(presets, "gone", None).chosen() == {}
    assert resolve_sampler({"precise": Sampler(temperature=0.3)}, "precise").temperature == 0.3
    assert resolve_sampler(presets, "own", Sampler(seed=8)).chosen() == {"temperature": 0.5, "seed": 8}


def test_l4_every_provider_has_a_list_of_what_it_supports() -> None:
    values = set(Sampler.model_fields)
    for preset in PRESETS:
        assert {"temperature", "top_p", "max_tokens", "stop"} <= supported_values(preset) <= values


samplers = st.builds(
    Sampler,
    temperature=st.none() | st.floats(0, 5),
    top_k=st.none() | st.integers(0, 1_000),
    seed=st.none() | st.integers(0, 2**31 - 1),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
)


@given(samplers, samplers)
def test_l4_a_preset_over_another_keeps_its_own_values(first: Sampler, second: Sampler) -> None:
    both = first.over(second).chosen()
    assert both == {**second.chosen(), **first.chosen()}
    assert first.over(first) == first


def test_l4_text_and_chat_completion_presets_of_sillytavern_are_imported() -> None:
    text = {"temp": 1.2, "top_k": 0, "min_p": 0.05, "rep_pen": 1.1, "dry_multiplier": 0.8, "mirostat_mode": 2}
    sampler, unused = import_sillytavern(json.dumps(text).encode())
    assert sampler.chosen() == {
        "temperature": 1.2,
        "min_p": 0.05,
        "repetition_penalty": 1.1,
        "dry_multiplier": 0.8,
    }
    assert unused == ["mirostat_mode"]
    chat = {"temperature": 0.9, "freq_pen_openai": 0.2, "openai_max_tokens": 300, "seed": -1}
    chat["custom_stopping_strings"] = '["User:"]'  # type: ignore[assignment]
    sampler, _ = import_sillytavern(json.dumps(chat).encode())
    assert (sampler.frequency_penalty, sampler.max_tokens, sampler.seed, sampler.stop) == (0.2, 300, None, ("User:",))


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"a": 1}', b'{"temp": 99}', b'{"temp": "hot"}', b"\xff\xfe"])
def test_l4_what_is_no_preset_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        import_sillytavern(data)


@given(
    st.binary(max_size=200)
    | st.dictionaries(st.text(), st.integers() | st.text()).map(lambda d: json.dumps(d).encode())
)
def test_l4_any_file_is_imported_or_refused(data: bytes) -> None:
    with suppress(ConfigError):
        import_sillytavern(data)


async def test_l4_a_models_preset_is_sent_as_far_as_the_provider_supports_it() -> None:
    with serving(ModelServer()) as server, real_requests(allowed=True):
        server.key = None
        for preset, expected in (
            ("openai-compatible", {"temperature": 0.5, "presence_penalty": 0.3}),
            ("vllm", {"temperature": 0.5, "presence_penalty": 0.3, "top_k": 40, "min_p": 0.1}),
        ):
            settings = ModelsSettings.model_validate(
                {
                    "default": "mine/large-70b",
                    "providers": {"mine": {"preset": preset, "base_url": server.base_url}},
                    "samplers": {"own": {"temperature": 0.5, "presence_penalty": 0.3, "top_k": 40, "min_p": 0.1}},
                    "details": {"mine/large-70b": {"sampler": "own"}},
                }
            )
            models = Models(settings)
            await models.ask(Role.NARRATIVE, Prompt.of("Hello"))
            await models.ask(Role.NARRATIVE, Prompt.of("Hello", temperature=0.0))  # a caller's own value stays
            first, second = server.bodies[-2:]
            names = ("temperature", "presence_penalty", "top_k", "min_p")
            assert {name: first[name] for name in names if name in first} == expected
            assert second["temperature"] == 0.0
            await models.close()


async def test_l4_what_coterie_sends_itself_is_not_replaced_by_further_fields() -> None:
    schema = OutputSchema(name="answer", definition={"type": "object", "properties": {}})
    tool = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})
    with serving(ModelServer()) as server, real_requests(allowed=True):
        server.key = None
        settings = ModelsSettings.model_validate(
            {
                "default": "mine/large-70b",
                "providers": {
                    "mine": {"preset": "openai-compatible", "base_url": server.base_url, "native_schema": True}
                },
            }
        )
        models = Models(settings)
        for more in ({"tools": (tool,)}, {"output_schema": schema}):
            with suppress(CoterieError):  # the answer is not what was asked for
                await models.ask(Role.NARRATIVE, Prompt.of("Hello", max_tokens=9, **more))
        await models.close()
    sent = {name for body in server.bodies for name in body}
    assert {"model", "messages", "tools", "response_format"} <= sent <= RESERVED_FIELDS
    for name in sent:
        with pytest.raises(ValueError, match=f"{name} cannot be set here"):
            Sampler(extra_body={"mirostat": 2, name: "x"})
    assert Sampler(extra_body={"mirostat": 2}).extra_body == {"mirostat": 2}
