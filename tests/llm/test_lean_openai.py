"""The OpenAI client's shortcuts: what they leave out is nothing that anybody would miss."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from openai._streaming import ServerSentEvent

from coterie.llm.catalogue import Catalogue
from coterie.llm.hosted import Hosted
from coterie.llm.lean_openai import joined
from coterie.llm.messages import Message, Prompt, Request
from tests.llm.conftest import settings_for
from tests.llm.fault_server import FaultServer, says

Role = Literal["system", "user", "assistant"]


def chunk(delta: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": more.pop("finish_reason", None)}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def event(data: dict[str, Any] | str) -> ServerSentEvent:
    return ServerSentEvent(data=data if isinstance(data, str) else json.dumps(data))


def told(*data: dict[str, Any] | str) -> list[Any]:
    return [each.json() if each.data != "[DONE]" else each.data for each in joined(map(event, data))]


def said(*words: str) -> list[dict[str, Any]]:
    return [chunk({"role": "assistant", "content": word, "tool_calls": None}) for word in words]


def test_words_that_come_together_are_one_chunk() -> None:
    (one,) = told(*said("It", " rains", " again."))
    assert one["choices"][0]["delta"]["content"] == "It rains again."


CALL = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "look", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "other",
    [
        chunk(finish_reason="stop"),
        chunk({"content": " and"}, finish_reason="length"),
        chunk(CALL),
        chunk({"content": " aloud", **CALL}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": None}),
        chunk({"content": ""}),
        chunk({"refusal": "No."}),
        chunk({"content": " dear"}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
        {**chunk(), "choices": []},
        {**chunk(), "choices": chunk({"content": "a"})["choices"] * 2},
        {"error": {"message": "overloaded"}},
        {"choices": "nonsense"},
    ],
)
def test_whatever_says_more_than_words_stays_as_it_is_and_in_its_place(other: dict[str, Any]) -> None:
    before, between, after = told(*said("It", " rains"), other, *said(" now", "."))
    assert before["choices"][0]["delta"]["content"] == "It rains"
    assert between == other
    assert after["choices"][0]["delta"]["content"] == " now."


def test_the_end_and_nonsense_are_left_to_whoever_handles_them() -> None:
    found = list(joined(map(event, [json.dumps(said("a")[0]), "{broken", "[DONE]"])))
    assert [each.data for each in found[1:]] == ["{broken", "[DONE]"]


async def test_messages_are_sent_as_they_are(openai_server: FaultServer) -> None:
    openai_server.on("first", says("Yes."))
    hosted = Hosted(Catalogue(settings_for(openai_server)).spec("here"))
    talked: tuple[tuple[Role, str], ...] = (
        ("system", "Be brief."),
        ("user", "One?"),
        ("assistant", "Two."),
        ("user", "Three?"),
    )
    talk = tuple(Message(role=role, text=text) for role, text in talked)
    async for _ in hosted.stream(Request(model="first", prompt=Prompt(messages=talk))):
        pass
    await hosted.close()
    (asked,) = openai_server.requests["first"]
    assert [(each["role"], each["content"]) for each in asked["messages"]] == list(talked)
    assert asked["stream"] is True
