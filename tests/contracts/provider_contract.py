"""The contract of providers. Subclass it and define the fixture `provider`."""

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

    def request(self, text: str = "Say hello.", schema: OutputSchema | None = None) -> CompletionRequest:
        prompt = Prompt.of(text, system="You are brief.", max_tokens=48, temperature=0.0, seed=1, output_schema=schema)
        return CompletionRequest(model=self.model, prompt=prompt)

    async def test_text_is_streamed_and_ends_with_exactly_one_finished_chunk(self, provider: Provider) -> None:
        chunks: list[Chunk] = [chunk async for chunk in provider.stream(self.request())]
        texts = [chunk.text for chunk in chunks if isinstance(chunk, TextDelta)]
        assert len(texts) > 1
        assert all(texts)
        assert [isinstance(chunk, Finished) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]

    async def test_the_finished_chunk_has_token_counts_and_the_model(self, provider: Provider) -> None:
        chunks = [chunk async for chunk in provider.stream(self.request())]
        end = chunks[-1]
        assert isinstance(end, Finished)
        assert end.tokens.input > 0
        assert end.tokens.output > 0
        assert end.model

    async def test_the_provider_works_after_a_stream_was_left_early(self, provider: Provider) -> None:
        async with aclosing(provider.stream(self.request())) as stream:
            async for _ in stream:
                break
        assert [chunk async for chunk in provider.stream(self.request())]

    async def test_the_answer_fits_the_schema(self, provider: Provider) -> None:
        chunks = [chunk async for chunk in provider.stream(self.request("Mara is 7. Fill in the form.", FORM))]
        form = json.loads("".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta)))
        assert isinstance(form["name"], str)
        assert isinstance(form["age"], int)

    async def test_it_can_be_closed_twice_and_used_again(self, provider: Provider) -> None:
        await provider.close()
        await provider.close()
        assert [chunk async for chunk in provider.stream(self.request())]
