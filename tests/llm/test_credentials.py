"""A key is sent to the address it was given for, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.base.errors import ConfirmationNeeded
from coterie.llm.errors import ModelError
from coterie.llm.messages import Prompt
from coterie.llm.router import Models
from coterie.llm.settings import PRESETS, ModelsSettings, Role, check_key_destinations
from tests.llm.conftest import settings_for
from tests.llm.fault_server import Behaviour, Connection, FaultServer

KEY = "key-for-tests-only"


def redirects_to(url: str) -> Behaviour:
    async def behave(connection: Connection) -> None:
        await connection.status(307, {"message": "Elsewhere."}, {"location": url})

    return behave


async def test_a_redirect_to_another_address_does_not_carry_the_key(server: FaultServer) -> None:
    async with FaultServer(anthropic=server.anthropic).running() as other:
        path = "/v1/messages" if server.anthropic else "/chat/completions"
        server.on("first", redirects_to(f"{other.url}{path}"))
        models = Models(settings_for(server, ("first",)))
        with pytest.raises(ModelError):
            async with models.stream(Role.NARRATIVE, Prompt.of("Hello")) as reply:
                assert [chunk async for chunk in reply]
        await models.close()
        assert KEY in "".join(server.headers)
        assert KEY not in "".join(other.headers)


async def test_no_environment_variable_reaches_a_provider(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "AUTH_TOKEN", "ADMIN_KEY", "ORG_ID", "PROJECT_ID", "WEBHOOK_SIGNING_KEY"):
        for library in ("OPENAI", "ANTHROPIC"):
            monkeypatch.setenv(f"{library}_{name}", f"environment-{name}")
    for library in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{library}_CUSTOM_HEADERS", "x-extra: environment-header\nauthorization: environment-two")
    models = Models(settings_for(server, ("first",)))
    async with models.stream(Role.NARRATIVE, Prompt.of("Hello")) as reply:
        assert [chunk async for chunk in reply]
    await models.close()
    sent = "".join(server.headers)
    assert KEY in sent and "environment-" not in sent


BOUND = {"provider": "openai", "api_key": "the-key", "providers": {"mine": {"preset": "openai", "api_key": "other"}}}
SAME_ADDRESS: list[dict[str, Any]] = [
    {},
    {"base_url": "https://api.openai.com/v2"},
    {"base_url": "https://API.openai.com:443/v1"},
    {"api_key": None, "base_url": "https://evil.example/v1"},
    {"narrative_model": "gpt", "roles": {"narrative": "mine/x"}},
    {"provider": "embedded"},
    {"providers": {"mine": {"base_url": "https://evil.example/v1"}}},
]
OTHER_ADDRESS: list[dict[str, Any]] = [
    {"base_url": "https://evil.example/v1"},
    {"base_url": "http://api.openai.com/v1"},
    {"base_url": "https://api.openai.com:8443/v1"},
    {"base_url": "https://api.openai.com@evil.example/v1"},
    {"base_url": "https://api.openai.com.evil.example/v1"},
    {"base_url": "//evil.example"},
    *({"provider": name} for name in sorted(PRESETS) if name not in ("openai", "embedded", "openai-compatible")),
    {"provider": "mine", "providers": {"mine": {"base_url": "https://evil.example/v1"}}},
    {"providers": {"mine": {"preset": "openai", "api_key": "other", "base_url": "https://evil.example"}}},
    {"providers": {"mine": {"preset": "anthropic", "api_key": "other"}}},
    {"providers": {"new": {"preset": "anthropic", "api_key": "the-key"}}},
    {"providers": {"openai": {"base_url": "https://evil.example/v1"}}},
]


@pytest.mark.parametrize("change", SAME_ADDRESS)
def test_a_change_that_sends_no_key_elsewhere_is_allowed(change: dict[str, Any]) -> None:
    check_key_destinations(ModelsSettings.model_validate(BOUND), ModelsSettings.model_validate({**BOUND, **change}))


@pytest.mark.parametrize("change", OTHER_ADDRESS)
def test_a_change_that_sends_a_key_elsewhere_needs_a_confirmation(change: dict[str, Any]) -> None:
    before, after = ModelsSettings.model_validate(BOUND), ModelsSettings.model_validate({**BOUND, **change})
    with pytest.raises(ConfirmationNeeded) as refused:
        check_key_destinations(before, after)
    assert "the-key" not in str(refused.value) and "coterie models add" in refused.value.fix
