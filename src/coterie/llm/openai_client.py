"""OpenAI's client, which sends the messages of a chat completion as they are.

Importing this module imports the client library, which takes seconds; only `hosted` does, on the first request.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat
from openai.resources.chat.completions import AsyncCompletions


class PlainMessagesClient(AsyncOpenAI):
    """The client for messages that are plain JSON, such as those of pydantic-ai."""

    @cached_property
    def chat(self) -> AsyncChat:
        return _Chat(self)


class _Chat(AsyncChat):
    def __init__(self, client: AsyncOpenAI) -> None:
        super().__init__(client)
        self._plain_completions = _Completions(client)

    @cached_property
    def completions(self) -> AsyncCompletions:
        return self._plain_completions


class _Completions(AsyncCompletions):
    async def create(self, **options: Any) -> Any:
        # The library compares each message with every type that it might have, and copies it: with a long dialogue,
        # this took most of the time of a request. Fields of `extra_body` replace those of the request as they are.
        body = {**(options.get("extra_body") or {}), "messages": options["messages"]}
        return await super().create(**{**options, "messages": [], "extra_body": body})
