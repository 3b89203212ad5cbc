"""Retry, fallback, rest (D9) against servers that misbehave on real sockets, in both protocols."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from coterie.base.clock import ManualClock
from coterie.llm import errors
from coterie.llm.messages import Prompt, PromptMessage, TextDelta, ToolCall, ToolSpec
from coterie.llm.router import Models
from coterie.llm.settings import Role
from tests.llm.conftest import Naps, Opened, settings_for
from tests.llm.fault_server import (
    Behaviour,
    FaultServer,
    Wire,
    closes_without_a_word,
    drips,
    empty_answer,
    fails,
    invalid_json,
    malformed_sse,
    never_answers,
    overloaded_in_stream,
    resets_after,
    says,
    stops_dead_after,
)

PROMPT = Prompt.of("Who are you?", system="You are Mara.")

TRANSIENT: dict[str, tuple[Behaviour, type[errors.ModelError]]] = {
    "429": (fails(429, kind="rate_limit_error"), errors.RateLimited),
    "500": (fails(500), errors.ServerFault),
    "502": (fails(502), errors.ServerFault),
    "503": (fails(503), errors.Overloaded),
    "504": (fails(504), errors.ServerFault),
    "529": (fails(529, kind="overloaded_error"), errors.Overloaded),
    "reset before a word": (resets_after(), errors.Unreachable),
    "overloaded in stream": (overloaded_in_stream(), errors.ModelUnavailable),
    "malformed SSE": (malformed_sse, errors.ModelUnavailable),
    "invalid JSON": (invalid_json, errors.ModelUnavailable),
    "empty answer": (empty_answer, errors.EmptyAnswer),
    "closes without a word": (closes_without_a_word, errors.ModelUnavailable),
}


@pytest.mark.parametrize("name", TRANSIENT)
async def test_d9_passing_trouble_is_tried_three_times_then_falls_back(
    name: str, server: FaultServer, models: Models, naps: Naps
) -> None:
    server.on("first", TRANSIENT[name][0])
    server.on("second", says("I am ", "Mara."))
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.text == "I am Mara."
    assert answer.model == "here/second"
    assert server.count("first") == 3
    assert naps.taken == [0.5, 1.0]


@pytest.mark.parametrize("name", TRANSIENT)
async def test_d9_passing_trouble_is_told_apart_by_type_when_nobody_can_answer(
    opened: Opened, name: str, server: FaultServer, naps: Naps
) -> None:
    behaviour, kind = TRANSIENT[name]
    server.on("first", behaviour)
    models = opened(settings_for(server, ("first",)), sleep=naps)
    with pytest.raises(kind) as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.retryable
    assert caught.value.what
    assert caught.value.fix


async def test_d9_one_hiccup_is_forgiven(server: FaultServer, models: Models, naps: Naps) -> None:
    server.on("first", fails(503), says("Back."))
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert (answer.text, answer.model, naps.taken) == ("Back.", "here/first", [0.5])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.BadRequest),
        (401, errors.KeyRejected),
        (402, errors.PaymentNeeded),
        (403, errors.Forbidden),
        (404, errors.UnknownModel),
    ],
)
async def test_d9_a_request_at_fault_never_falls_back_and_says_why(
    status: int, kind: type[errors.ModelError], server: FaultServer, models: Models, naps: Naps
) -> None:
    server.on("first", fails(status, kind="invalid_request_error", message="temperature is too hot"))
    with pytest.raises(kind, match="temperature is too hot") as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.status == status
    assert not caught.value.retryable
    assert (server.count("first"), server.count("second"), naps.taken) == (1, 0, [])


async def test_d9_retry_after_rests_the_model_for_every_caller(opened: Opened, server: FaultServer, naps: Naps) -> None:
    clock = ManualClock()
    models = opened(settings_for(server), clock=clock, sleep=naps)
    server.on("first", fails(429, retry_after="30", kind="rate_limit_error"), says("Rested."))
    answers = [await models.ask(Role.NARRATIVE, PROMPT)]
    assert server.count("first") == 1  # It said how long to wait: no point in trying sooner.
    answers += await asyncio.gather(*(models.ask(role, PROMPT) for role in (Role.NARRATIVE, Role.CHANNEL) * 5))
    clock.advance(29.9)
    answers.append(await models.ask(Role.WORKER, PROMPT))
    assert {answer.model for answer in answers} == {"here/second"}
    assert server.count("first") == 1
    clock.advance(0.2)
    assert (await models.ask(Role.NARRATIVE, PROMPT)).text == "Rested."


async def test_d9_without_retry_after_the_rest_is_the_configured_one(
    opened: Opened, server: FaultServer, naps: Naps
) -> None:
    clock = ManualClock()
    models = opened(settings_for(server, rate_limit_cooldown_s=60), clock=clock, sleep=naps)
    server.on("first", fails(429, kind="rate_limit_error"))
    await models.ask(Role.NARRATIVE, PROMPT)
    assert server.count("first") == 3
    clock.advance(59)
    await asyncio.gather(*(models.ask(Role.NARRATIVE, PROMPT) for _ in range(10)))
    assert server.count("first") == 3
    clock.advance(2)
    await models.ask(Role.NARRATIVE, PROMPT)
    assert server.count("first") > 3


async def test_d9_a_short_retry_after_is_waited_out(opened: Opened, server: FaultServer) -> None:
    clock = ManualClock()

    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        clock.advance(seconds)

    models = opened(settings_for(server), clock=clock, sleep=nap)
    server.on("first", fails(429, retry_after="1", kind="rate_limit_error"), says("Here."))
    assert (await models.ask(Role.NARRATIVE, PROMPT)).model == "here/first"
    assert naps == [1.0]


async def test_d9_when_the_whole_chain_rests_the_error_says_until_when(
    opened: Opened, server: FaultServer, naps: Naps
) -> None:
    models = opened(settings_for(server), clock=ManualClock(), sleep=naps)
    for model in ("first", "second"):
        server.on(model, fails(429, retry_after="30", kind="rate_limit_error"))
    with pytest.raises(errors.ChainFailed):
        await models.ask(Role.NARRATIVE, PROMPT)
    with pytest.raises(errors.ChainFailed) as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.retry_after == pytest.approx(30)
    assert [type(failure) for failure in caught.value.failures] == [errors.RateLimited] * 2
    assert (server.count("first"), server.count("second")) == (1, 1)


async def test_d9_retry_after_can_be_a_date(opened: Opened, server: FaultServer, naps: Naps) -> None:
    models = opened(settings_for(server, ("first",)), sleep=naps)
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.on("first", fails(429, retry_after=later, kind="rate_limit_error"))
    with pytest.raises(errors.RateLimited) as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.retry_after is not None
    assert 60 < caught.value.retry_after <= 90
    assert server.count("first") == 1


async def test_chunks_that_bend_the_published_types_are_still_read(opened: Opened, openai_server: FaultServer) -> None:
    async def bends(wire: Wire) -> None:
        await wire.begin()
        await wire.event({**wire.word("Hello"), "created": None, "object": 7, "id": None})
        end = wire.word("")
        end["choices"][0]["finish_reason"] = "eos"
        await wire.event(end)
        await wire.chunk(b"data: [DONE]\n\n")
        await wire.raw(b"0\r\n\r\n")

    models = opened(settings_for(openai_server))
    openai_server.on("first", bends)
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.text == "Hello"
    assert answer.tokens.estimated
    assert answer.tokens.input > 0


async def test_messages_are_sent_as_they_are(opened: Opened, openai_server: FaultServer) -> None:
    talk = (
        PromptMessage(role="system", text="Be brief."),
        PromptMessage(role="user", text="One?"),
        PromptMessage(role="assistant", text="Two."),
        PromptMessage(role="user", text="Three?"),
    )
    await opened(settings_for(openai_server)).ask(Role.NARRATIVE, Prompt(messages=talk))
    (asked,) = openai_server.requests["first"]
    assert [(each["role"], each["content"]) for each in asked["messages"]] == [(each.role, each.text) for each in talk]
    assert asked["stream"] is True


async def test_a_long_answer_arrives_whole(server: FaultServer, models: Models) -> None:
    async def counts(wire: Wire) -> None:
        await wire.begin()
        for number in range(600):
            await wire.words(f" {number}")
        await wire.end()

    server.on("first", counts)
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.text == "".join(f" {number}" for number in range(600))


async def test_tools_and_their_results_travel_both_ways(server: FaultServer, models: Models) -> None:
    call = ToolCall(id="call_1", name="look", arguments='{"where": "harbour"}')
    prompt = Prompt(
        messages=(
            PromptMessage(role="user", text="Where is she?"),
            PromptMessage(role="assistant", text="Let me look.", calls=(call,)),
            PromptMessage(role="tool", text="At the harbour.", answers=call),
        ),
        tools=(ToolSpec(name="look", description="Look somewhere.", parameters={"type": "object", "properties": {}}),),
    )
    await models.ask(Role.NARRATIVE, prompt)
    (asked,) = server.requests["first"]
    sent = json.dumps(asked)
    assert "call_1" in sent
    assert "At the harbour." in sent
    assert "Look somewhere." in sent


async def test_a_requested_tool_call_is_part_of_the_answer(opened: Opened, openai_server: FaultServer) -> None:
    async def calls_a_tool(wire: Wire) -> None:
        await wire.begin()
        for piece in ({"name": "look", "arguments": '{"where":'}, {"arguments": ' "mill"}'}):
            chunk = wire.word("")
            part = {"index": 0, "id": "call_9", "type": "function", "function": piece}
            chunk["choices"][0]["delta"] = {"tool_calls": [part]}
            await wire.event(chunk)
        end = wire.word("")
        end["choices"][0] |= {"delta": {}, "finish_reason": "tool_calls"}
        await wire.event(end)
        await wire.raw(b"0\r\n\r\n")

    models = opened(settings_for(openai_server))
    openai_server.on("first", calls_a_tool)
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.reason == "tool"
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == [("look", {"where": "mill"})]


async def test_an_exhausted_quota_is_not_tried_again_but_falls_back(
    opened: Opened, openai_server: FaultServer, naps: Naps
) -> None:
    models = opened(settings_for(openai_server), sleep=naps)
    openai_server.on("first", fails(429, kind="insufficient_quota"))
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert (answer.model, openai_server.count("first")) == ("here/second", 1)


async def test_a_model_that_never_begins_times_out_and_falls_back(
    opened: Opened, server: FaultServer, naps: Naps
) -> None:
    models = opened(settings_for(server, first_token_s=1), sleep=naps)
    server.on("first", never_answers)
    assert (await models.ask(Role.NARRATIVE, PROMPT)).model == "here/second"
    assert server.count("first") == 3


@pytest.mark.parametrize(
    "behaviour", [stops_dead_after("I am", " not"), drips("I am", " not")], ids=["silence", "drip"]
)
async def test_silence_and_a_slow_drip_end_with_the_partial_text(
    opened: Opened, behaviour: Behaviour, server: FaultServer
) -> None:
    models = opened(settings_for(server, idle_s=0.3))
    server.on("first", behaviour)
    with pytest.raises(errors.TimedOut, match="stopped sending") as caught:
        await models.stream(Role.NARRATIVE, PROMPT).finish()
    assert caught.value.partial == "I am not"
    assert server.count("second") == 0
    await asyncio.wait_for(server.hung_up.wait(), 60)


async def test_a_reset_mid_stream_keeps_the_partial_text_and_never_mixes_models(
    server: FaultServer, models: Models
) -> None:
    server.on("first", resets_after("I am", " half"))
    shown = ""
    with pytest.raises(errors.Unreachable) as caught:
        async for chunk in models.stream(Role.NARRATIVE, PROMPT):
            assert isinstance(chunk, TextDelta)
            shown += chunk.text
    assert shown == caught.value.partial == "I am half"
    assert caught.value.retryable
    assert (server.count("first"), server.count("second")) == (1, 0)


async def test_a_reset_that_nobody_watched_is_tried_again(server: FaultServer, models: Models) -> None:
    server.on("first", resets_after("I am", " half"), says("I am whole."))
    assert (await models.ask(Role.NARRATIVE, PROMPT)).text == "I am whole."


async def test_the_deadline_covers_every_try_and_fallback(opened: Opened, server: FaultServer) -> None:
    models = opened(settings_for(server))
    server.on("first", never_answers)
    server.on("second", never_answers)
    with pytest.raises(errors.ModelError) as caught:
        await models.ask(Role.NARRATIVE, PROMPT, deadline_s=0.3)
    failures = caught.value.failures if isinstance(caught.value, errors.ChainFailed) else (caught.value,)
    assert all(isinstance(failure, errors.TimedOut) for failure in failures)
    assert server.count("first") <= 1
    assert server.count("second") == 0


async def test_stopping_closes_the_providers_connection_at_once(server: FaultServer, models: Models) -> None:
    server.on("first", stops_dead_after("One", " two"))
    async with models.stream(Role.NARRATIVE, PROMPT) as reply:
        async for _ in reply:
            if reply.text == "One two":
                break
    await asyncio.wait_for(server.hung_up.wait(), 60)
    assert reply.text == "One two"


async def test_cancelling_the_task_closes_the_providers_connection_at_once(server: FaultServer, models: Models) -> None:
    server.on("first", stops_dead_after("One", " two"))
    reply = models.stream(Role.NARRATIVE, PROMPT)
    reading = asyncio.ensure_future(reply.finish())
    while reply.text != "One two":
        await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.wait_for(server.hung_up.wait(), 60)


async def test_a_chain_longer_than_three_fallbacks_is_refused(openai_server: FaultServer) -> None:
    with pytest.raises(ValueError, match="at most 4"):
        settings_for(openai_server, ("a", "b", "c", "d", "e"))
