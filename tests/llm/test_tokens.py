"""Token counts: exact for the embedded model, a calibrated estimate for others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.base.errors import ConfigError
from coterie.llm.embedded.gguf import find_weights, load_tokenizer, read_metadata
from coterie.llm.messages import Prompt, PromptMessage, ToolSpec
from coterie.llm.settings import EMBEDDED, Catalogue, ModelsSettings, Target
from coterie.llm.tokens import CL100K, O200K, TEKKEN, TokenCounter, estimate_tokens, token_weights_for

OTHER = Target.parse("featherless/NousResearch/Hermes-3-Llama-3.1-8B")


@pytest.fixture
def counter() -> TokenCounter:
    return TokenCounter(Catalogue(ModelsSettings()))


@given(st.text(max_size=300))
def test_law_the_exact_tokenizer_is_lossless(text: str) -> None:
    tokenizer = load_tokenizer(find_weights(None))
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode_ordinary(text)) == text


@given(st.text(max_size=200), st.text(max_size=200))
def test_law_an_estimate_grows_with_its_text(one: str, two: str) -> None:
    assert estimate_tokens("") == 0
    assert (estimate_tokens(one) > 0) == bool(one)
    assert estimate_tokens(one + " and\n\n" + two) >= estimate_tokens(two)


# Counted with the real vocabularies; the estimate must be within a third even for a single sentence.
REAL = [
    ("The fox crossed the frozen river just before dawn, and nobody in the village heard it.", 18, 18, 18),
    ("def area(radius: float) -> float:\n    return 3.14159 * radius ** 2\n", 22, 22, 26),
    ("Der Fuchs überquerte den zugefrorenen Fluss kurz vor der Dämmerung, und niemand im Dorf hörte ihn.", 34, 29, 26),
    ("Лиса перешла замёрзшую реку перед рассветом, и никто в деревне её не услышал.", 39, 26, 26),
    ("狐狸在黎明前穿过结冰的河流,村里没有人听见它。", 32, 21, 26),
]


@pytest.mark.parametrize(("text", "cl100k", "o200k", "tekken"), REAL)
def test_the_estimate_is_close_to_the_real_count(text: str, cl100k: int, o200k: int, tekken: int) -> None:
    for weights, real in ((CL100K, cl100k), (O200K, o200k), (TEKKEN, tekken)):
        assert estimate_tokens(text, weights) == pytest.approx(real, rel=1 / 3)


def test_tokenizer_families_are_found_by_model_name() -> None:
    assert token_weights_for("dphn/Dolphin-Mistral-24B-Venice-Edition") is TEKKEN
    assert token_weights_for("gpt-4o-mini") is O200K
    assert token_weights_for("gpt-4-turbo") is CL100K
    assert token_weights_for("NousResearch/Hermes-3-Llama-3.1-8B") is CL100K


def test_the_estimate_is_calibrated_by_reported_counts(counter: TokenCounter) -> None:
    text = "word " * 500
    before = counter.count(OTHER, text)
    for _ in range(40):
        counter.calibrate(OTHER, counter.count(OTHER, text), round(before * 1.3))
    assert counter.count(OTHER, text) == pytest.approx(before * 1.3, rel=0.02)
    for _ in range(40):
        counter.calibrate(OTHER, 1, 10_000)  # wrong counts have a limited effect
    assert counter.count(OTHER, text) <= 2 * before


def test_an_exact_count_is_not_calibrated(counter: TokenCounter) -> None:
    before = counter.count(EMBEDDED, "Hello there.")
    counter.calibrate(EMBEDDED, 1, 2)
    assert counter.count(EMBEDDED, "Hello there.") == before
    assert counter.is_exact(EMBEDDED)
    assert not counter.is_exact(OTHER)


def test_a_prompt_counts_messages_calls_tools_and_images(counter: TokenCounter) -> None:
    bare = Prompt(messages=(PromptMessage(role="user", text="Hi."),))
    tool = ToolSpec(name="look", description="Look around the room.", parameters={"type": "object"})
    with_tool = bare.model_copy(update={"tools": (tool,)})
    assert 0 < counter.count_prompt(OTHER, bare) < counter.count_prompt(OTHER, with_tool)


def test_a_file_that_is_not_a_model_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    for content in (b"", b"GGUF", b"PNG....", b"GGUF" + b"\xff" * 40):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match="is not a GGUF model file"):
            read_metadata(file)
