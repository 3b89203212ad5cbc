"""One try with one model, watched: it must begin in time, go on in time, end in time, and say something.

Only the wait for the next chunk is under the clock, never the time its reader takes, and an event that is dripped
byte by byte is not a chunk: a slow drip runs out of time like silence does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from coterie.llm.catalogue import ProviderSpec
from coterie.llm.errors import BadAnswer, EmptyAnswer, ModelError, TimedOut
from coterie.llm.messages import Chunk, CompletionRequest, Finished
from coterie.llm.provider import Provider
from coterie.llm.reply import PartialAnswer

_TIMEOUT_FIX = "Try again, or choose a quicker model; the limits are first_token_s, idle_s and deadline_s in [models]."


async def stream_attempt(
    provider: Provider, request: CompletionRequest, spec: ProviderSpec, partial: PartialAnswer, deadline: float
) -> AsyncGenerator[Chunk, None]:
    target = f"{provider.name}/{request.model}"
    loop = asyncio.get_running_loop()
    late, limit = "did not begin to answer", loop.time() + spec.first_token_s
    async with aclosing(provider.stream(request)) as chunks:
        while True:
            if deadline < limit:
                late, limit = "did not finish", deadline
            try:
                async with asyncio.timeout_at(limit):
                    chunk = await anext(chunks)
            except TimeoutError:
                raise TimedOut(f"{target} {late} in time.", _TIMEOUT_FIX) from None
            except StopAsyncIteration:
                raise BadAnswer(f"{target} stopped without ending its answer.", "Try again.") from None
            partial.add(chunk)
            if isinstance(chunk, Finished):
                if not partial.has_content:
                    raise _empty_answer_error(target, chunk)
                yield chunk
                return
            late, limit = "fell silent and did not go on", loop.time() + spec.idle_s
            yield chunk


def _empty_answer_error(target: str, end: Finished) -> ModelError:
    if end.reason == "length":
        return EmptyAnswer(f"{target} used up its tokens before it said anything.", "Raise max_tokens.")
    if end.reason == "filter":
        return EmptyAnswer(f"{target}'s filter held the answer back.", "Choose another model, or ask otherwise.")
    return EmptyAnswer(f"{target} answered with nothing.", "Try again, or choose another model.")
