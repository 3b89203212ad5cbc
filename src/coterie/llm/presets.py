"""Providers we know by name: where they are, how they speak, whether they need a key.

A preset is only a starting point; `[models.providers.NAME]` in the settings overrides any of it, and `preset =
"openai-compatible"` with a `base_url` reaches everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

WireProtocol = Literal["openai", "anthropic", "embedded"]


@dataclass(frozen=True)
class Preset:
    protocol: WireProtocol
    base_url: str
    needs_key: bool
    native_schema: bool
    """Whether the provider itself holds an answer to a JSON schema."""
    free: bool = False
    """Runs on this machine: costs nothing and counts toward no cap."""
    flat_rate: bool = False
    """Paid by the month: a call costs nothing more, but still counts as tokens and calls."""
    defaults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Role → models, for the providers that can be the default one."""


PRESETS: dict[str, Preset] = {
    "featherless": Preset(
        "openai",
        "https://api.featherless.ai/v1",
        needs_key=True,
        native_schema=False,
        flat_rate=True,
        defaults={
            "narrative": ("dphn/Dolphin-Mistral-24B-Venice-Edition",),
            "classifier": (
                "NousResearch/Hermes-3-Llama-3.1-8B",
                "cognitivecomputations/dolphin-2.9.4-llama3-8b",
                "mlabonne/Meta-Llama-3.1-8B-Instruct-abliterated",
            ),
        },
    ),
    "openai": Preset("openai", "https://api.openai.com/v1", needs_key=True, native_schema=True),
    "anthropic": Preset("anthropic", "https://api.anthropic.com", needs_key=True, native_schema=True),
    "openrouter": Preset("openai", "https://openrouter.ai/api/v1", needs_key=True, native_schema=True),
    "ollama": Preset("openai", "http://127.0.0.1:11434/v1", needs_key=False, native_schema=True, free=True),
    "lmstudio": Preset("openai", "http://127.0.0.1:1234/v1", needs_key=False, native_schema=True, free=True),
    "llamacpp": Preset("openai", "http://127.0.0.1:8080/v1", needs_key=False, native_schema=True, free=True),
    "vllm": Preset("openai", "http://127.0.0.1:8001/v1", needs_key=False, native_schema=True, free=True),
    "openai-compatible": Preset("openai", "", needs_key=False, native_schema=False),
    "embedded": Preset("embedded", "", needs_key=False, native_schema=True, free=True),
}
