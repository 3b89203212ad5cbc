"""The OpenAI-compatible API with OpenAI's client library."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionMessageParam
from pydantic import SecretStr

from coterie.llm.recording import RecordedCall, RecordedError
from coterie.llm.settings import ModelDetails
from coterie.surfaces.openai_api.settings import ApiSettings
from tests.surfaces.webhook.conftest import Serve, Served

History = list[ChatCompletionMessageParam]


def client(served: Served, key: str = "none needed", **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key=key, **options)


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def slowly(text: str) -> RecordedCall:
    return RecordedCall(
        chunks=tuple((n * 20_000, chunk) for n, (_, chunk) in enumerate(RecordedCall(say=text).all_chunks()))
    )


async def test_p15_a_client_talks_to_a_character_plain_and_streaming(serve: Serve) -> None:
    async with serve() as served, client(served) as ai:
        assert [model.id async for model in ai.models.list()] == ["Mara"]
        served.script.replies = ["The lamp is lit."]
        history: History = [{"role": "system", "content": "Be brief."}, user("Is the lamp lit?")]
        completion = await ai.chat.completions.create(model="Mara", messages=history)
        assert completion.choices[0].message.content == "The lamp is lit."
        assert completion.choices[0].finish_reason == "stop" and completion.usage is not None
        history += [{"role": "assistant", "content": "The lamp is lit."}, user("How far is it?")]
        served.script.faults = [slowly("It is a long way up.")]
        stream = await ai.chat.completions.create(
            model="mara", messages=history, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        words = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(words) == "It is a long way up." and len(words) > 3
        assert chunks[-1].usage is not None and chunks[-2].choices[0].finish_reason == "stop"
        assert "Is the lamp lit?" in served.script.prompt(), "one chat, however often the client sends it all"
        assert served.script.prompt().count("Is the lamp lit?") == 1


async def test_p15_the_character_remembers_the_next_day(serve: Serve) -> None:
    async with serve() as served, client(served) as ai:
        served.script.replies = ["Ilse. I will keep that.", "Your sister's name is Ilse."]
        await ai.chat.completions.create(model="Mara", messages=[user("My sister is called Ilse.")])
        await served.settle()
    served.clock.advance(26 * 3600)
    async with serve() as served, client(served) as ai:
        served.script.replies = ["Your sister's name is Ilse."]
        result = await ai.chat.completions.create(model="Mara", messages=[user("What is my sister called?")])
        assert result.choices[0].message.content == "Your sister's name is Ilse."
        assert "My sister is called Ilse." in served.script.prompt(), "a new chat, and what was said is a memory"
        rooms = served.app.story.chats.chats()
        assert len(rooms) == 2


async def test_p15_the_next_day_in_a_new_process(tmp_path: Path) -> None:
    async def day(moment: str, text: str, reply: str) -> dict[str, str]:
        command = [
            sys.executable,
            "-m",
            "tests.surfaces.openai_api.single_call",
            str(tmp_path / "app"),
            moment,
            text,
            reply,
        ]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert process.returncode == 0
        result: dict[str, str] = json.loads(out.splitlines()[-1])
        return result

    first = await day("2026-03-01T20:00:00+00:00", "My sister is called Ilse.", "Ilse. I will keep that.")
    assert first["said"] == "Ilse. I will keep that."
    second = await day("2026-03-02T21:00:00+00:00", "What is my sister called?", "Ilse, of course.")
    assert second["said"] == "Ilse, of course." and "My sister is called Ilse." in second["prompt"]
    assert "Ilse" not in first["prompt"].replace("My sister is called Ilse.", "")


async def test_p15_the_mode_can_be_chosen(serve: Serve) -> None:
    async with serve() as served, client(served, max_retries=0) as ai:
        messages = [user("Good evening")]
        await ai.chat.completions.create(model="Mara", messages=messages, extra_body={"mode": "story"})
        with pytest.raises(openai.BadRequestError, match="no kind of chat called opera"):
            await ai.chat.completions.create(model="Mara", messages=[user("Oh")], extra_body={"mode": "opera"})
        (binding,) = served.app.message_router.chats.rooms.on_surface("api")
        assert binding.mode == "story"


async def test_p3_without_the_key_there_is_no_character_no_list_and_no_memory(serve: Serve) -> None:
    async with serve(api=ApiSettings(key=SecretStr("our-own-key"))) as served:
        async with client(served, "our-own-key") as ai:
            await ai.chat.completions.create(model="Mara", messages=[user("The key is under the flowerpot.")])
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "our-own-key-"}):
            request = {"model": "Mara", "messages": [user("Where is the key?")], "stream": True}
            answers = [
                await served.client.get("/v1/models", headers=headers),
                await served.client.post("/v1/chat/completions", json=request, headers=headers),
                await served.client.post("/v1/chat/completions", json={**request, "model": "Nobody"}, headers=headers),
            ]
            assert {answer.status_code for answer in answers} == {401}
            assert not any("Mara" in answer.text or "flowerpot" in answer.text for answer in answers)
        assert len(served.script.asked) == 1


async def test_p15_the_same_call_is_another_reply_and_a_retry_the_same_one(serve: Serve) -> None:
    async with serve() as served, client(served) as ai:
        served.script.replies = ["One.", "Two.", "Three."]
        history: History = [user("Say one."), {"role": "assistant", "content": "One."}, user("And?")]
        await ai.chat.completions.create(model="Mara", messages=history[:1])
        first = await ai.chat.completions.create(model="Mara", messages=history)
        repeated = await ai.chat.completions.create(
            model="Mara", messages=history, extra_headers={"x-stainless-retry-count": "1"}
        )
        again = await ai.chat.completions.create(model="Mara", messages=history)
        result = [completion.choices[0].message.content for completion in (first, repeated, again)]
        assert result == ["Two.", "Two.", "Three."]
        (chat,) = served.app.story.chats.chats()
        assert [turn.text for turn in served.app.story.timeline.latest(chat.room, 9)][-2:] == ["And?", "Three."]


async def test_p15_the_api_key_is_required_if_set(serve: Serve) -> None:
    async with serve(api=ApiSettings(key=SecretStr("our-own-key"))) as served:
        async with client(served, "wrong") as ai:
            with pytest.raises(openai.AuthenticationError, match="missing or wrong"):
                await ai.models.list()
            with pytest.raises(openai.AuthenticationError):
                await ai.chat.completions.create(model="Mara", messages=[user("Hello")])
        async with client(served, "our-own-key") as ai:
            assert [model.id async for model in ai.models.list()] == ["Mara"]


async def test_p15_errors_have_openais_format(serve: Serve) -> None:
    async with serve() as served, client(served, max_retries=0) as ai:
        with pytest.raises(openai.NotFoundError, match="no character called"):
            await ai.chat.completions.create(model="Nobody", messages=[user("Hello")])
        with pytest.raises(openai.NotFoundError):
            await ai.chat.completions.create(model="Nobody", messages=[user("Hello")], stream=True)
        with pytest.raises(openai.BadRequestError, match="has to be the user's"):
            await ai.chat.completions.create(model="Mara", messages=[{"role": "assistant", "content": "?"}])
        served.script.faults = [RecordedCall(error=RecordedError(kind="RequestRefused", what="The model said no."))] * 3
        with pytest.raises(openai.InternalServerError, match="The model said no"):
            await ai.chat.completions.create(model="Mara", messages=[user("Hello")])
        stream = await ai.chat.completions.create(model="Mara", messages=[user("Hello there")], stream=True)
        with pytest.raises(openai.APIError, match="The model said no"):
            async for _ in stream:
                pass


async def test_p15_a_message_that_cannot_fit_is_the_clients_error(serve: Serve) -> None:
    async with serve() as served, client(served, max_retries=0) as ai:
        with pytest.raises(openai.BadRequestError, match="your message"):
            await ai.chat.completions.create(model="Mara", messages=[user("word " * 40_000)])


async def test_l6_p15_a_picture_of_a_message_is_shown_to_the_character(serve: Serve) -> None:
    png = b"\x89PNG\r\n\x1a\nboat"
    address = f"data:image/png;base64,{base64.b64encode(png).decode()}"

    def pictured(url: str) -> ChatCompletionMessageParam:
        text: ChatCompletionContentPartParam = {"type": "text", "text": "What is this?"}
        return {"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": url}}]}

    async with serve() as served, client(served, max_retries=0) as ai:
        served.app.models.settings.details["embedded/script"] = ModelDetails(vision=True)
        served.script.replies = ["A boat."]
        made = await ai.chat.completions.create(model="Mara", messages=[pictured(address)])
        assert made.choices[0].message.content == "A boat."
        images = [image.data for message in served.script.asked[-1].prompt.messages for image in message.images]
        assert images == [png]
        with pytest.raises(openai.BadRequestError, match="addresses are not opened"):
            await ai.chat.completions.create(model="Mara", messages=[pictured("https://example.org/boat.png")])
