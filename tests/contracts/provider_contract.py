"""What every provider must do, whoever stands behind it. Subclass it and give it a provider."""

from __future__ import annotations

import json
from contextlib import aclosing

from coterie.llm.messages import Chunk, CompletionRequest, Finished, OutputSchema, Prompt, Provider, TextDelta

FORM = OutputSchema(
    name="form",
    definition={
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
)


class ProviderContract:
    model = "first"

    def request(self, text: str = "Say hello.", shape: OutputSchema | None = None) -> CompletionRequest:
        prompt = Prompt.of(text, system="You are brief.", max_tokens=48, temperature=0.0, seed=1, output_schema=shape)
        return CompletionRequest(model=self.model, prompt=prompt)

    async def test_text_comes_in_pieces_and_ends_with_exactly_one_end(self, provider: Provider) -> None:
        chunks: list[Chunk] = [chunk async for chunk in provider.stream(self.request())]
        said = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
        assert len(said) > 1
        assert all(said)
        assert [isinstance(chunk, Finished) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]

    async def test_the_end_counts_tokens_and_names_the_model(self, provider: Provider) -> None:
        chunks = [chunk async for chunk in provider.stream(self.request())]
        end = chunks[-1]
        assert isinstance(end, Finished)
        assert end.tokens.input > 0
        assert end.tokens.output > 0
        assert end.model

    async def test_leaving_early_is_clean_and_the_provider_still_works(self, provider: Provider) -> None:
        async with aclosing(provider.stream(self.request())) as stream:
            async for _ in stream:
                break
        assert [chunk async for chunk in provider.stream(self.request())]

    async def test_a_schema_is_held_to(self, provider: Provider) -> None:
        chunks = [chunk async for chunk in provider.stream(self.request("Mara is 7. Fill in the form.", FORM))]
        form = json.loads("".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)))
        assert isinstance(form["name"], str)
        assert isinstance(form["age"], int)

    async def test_it_can_be_closed_twice_and_used_again(self, provider: Provider) -> None:
        await provider.close()
        await provider.close()
        assert [chunk async for chunk in provider.stream(self.request())]
