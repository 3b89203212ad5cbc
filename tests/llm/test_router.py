"""D9: retries, fallbacks and cooldowns with a faulty server on real sockets, in both protocols."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.base.clock import ManualClock
from coterie.llm import errors
from coterie.llm.messages import Prompt, PromptMessage, TextDelta, ToolCall, ToolSpec
from coterie.llm.router import Models
from coterie.llm.settings import Role
from tests.llm.conftest import MakeModels, SleepRecorder, settings_for
from tests.llm.fault_server import (
    Behaviour,
    Connection,
    FaultServer,
    closes_without_output,
    empty_answer,
    ends_without_reason,
    fails,
    hangs_after,
    invalid_json,
    malformed_sse,
    never_answers,
    overloaded_in_stream,
    resets_after,
    says,
    sends_byte_by_byte,
    sends_chunks,
)
from tests.untrusted_values import as_json, damaged, mutated

PROMPT = Prompt.of("Who are you?", system="You are Mara.")

TRANSIENT: dict[str, tuple[Behaviour, type[errors.ModelError]]] = {
    "429": (fails(429, kind="rate_limit_error"), errors.RateLimited),
    "500": (fails(500), errors.ServerFault),
    "502": (fails(502), errors.ServerFault),
    "503": (fails(503), errors.Overloaded),
    "504": (fails(504), errors.ServerFault),
    "529": (fails(529, kind="overloaded_error"), errors.Overloaded),
    "reset before output": (resets_after(), errors.Unreachable),
    "overloaded in stream": (overloaded_in_stream(), errors.ModelUnavailable),
    "malformed SSE": (malformed_sse, errors.ModelUnavailable),
    "invalid JSON": (invalid_json, errors.ModelUnavailable),
    "empty answer": (empty_answer, errors.EmptyAnswer),
    "closes without output": (closes_without_output, errors.ModelUnavailable),
}


@pytest.mark.parametrize("name", TRANSIENT)
async def test_d9_transient_errors_are_retried_twice_before_the_fallback(
    name: str, server: FaultServer, models: Models, sleeps: SleepRecorder
) -> None:
    server.on("first", TRANSIENT[name][0])
    server.on("second", says("I am ", "Mara."))
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.text == "I am Mara."
    assert answer.model == "here/second"
    assert server.count("first") == 3
    assert sleeps.seconds == [0.5, 1.0]


@pytest.mark.parametrize("name", TRANSIENT)
async def test_d9_transient_errors_have_distinct_types_when_no_model_answers(
    make_models: MakeModels, name: str, server: FaultServer, sleeps: SleepRecorder
) -> None:
    behaviour, kind = TRANSIENT[name]
    server.on("first", behaviour)
    models = make_models(settings_for(server, ("first",)), sleep=sleeps)
    with pytest.raises(kind) as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.retryable
    assert caught.value.what
    assert caught.value.fix


async def test_d9_a_single_failure_is_retried_with_the_same_model(
    server: FaultServer, models: Models, sleeps: SleepRecorder
) -> None:
    server.on("first", fails(503), says("Back."))
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert (answer.text, answer.model, sleeps.seconds) == ("Back.", "here/first", [0.5])


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
async def test_d9_a_refused_request_never_falls_back_and_gives_the_reason(
    status: int, kind: type[errors.ModelError], server: FaultServer, models: Models, sleeps: SleepRecorder
) -> None:
    server.on("first", fails(status, kind="invalid_request_error", message="temperature is too hot"))
    with pytest.raises(kind, match="temperature is too hot") as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.status == status
    assert not caught.value.retryable
    assert (server.count("first"), server.count("second"), sleeps.seconds) == (1, 0, [])


async def test_d9_retry_after_starts_a_cooldown_for_all_callers(
    make_models: MakeModels, server: FaultServer, sleeps: SleepRecorder
) -> None:
    clock = ManualClock()
    models = make_models(settings_for(server), clock=clock, sleep=sleeps)
    server.on("first", fails(429, retry_after="30", kind="rate_limit_error"), says("Ready."))
    answers = [await models.ask(Role.NARRATIVE, PROMPT)]
    assert server.count("first") == 1  # not retried before the time it named
    answers += await asyncio.gather(*(models.ask(role, PROMPT) for role in (Role.NARRATIVE, Role.CHANNEL) * 5))
    clock.advance(29.9)
    answers.append(await models.ask(Role.WORKER, PROMPT))
    assert {answer.model for answer in answers} == {"here/second"}
    assert server.count("first") == 1
    clock.advance(0.2)
    assert (await models.ask(Role.NARRATIVE, PROMPT)).text == "Ready."


async def test_d9_without_retry_after_the_configured_cooldown_is_used(
    make_models: MakeModels, server: FaultServer, sleeps: SleepRecorder
) -> None:
    clock = ManualClock()
    models = make_models(settings_for(server, rate_limit_cooldown_s=60), clock=clock, sleep=sleeps)
    server.on("first", fails(429, kind="rate_limit_error"))
    await models.ask(Role.NARRATIVE, PROMPT)
    assert server.count("first") == 3
    clock.advance(59)
    await asyncio.gather(*(models.ask(Role.NARRATIVE, PROMPT) for _ in range(10)))
    assert server.count("first") == 3
    clock.advance(2)
    await models.ask(Role.NARRATIVE, PROMPT)
    assert server.count("first") > 3


async def test_d9_a_short_retry_after_is_waited_out(make_models: MakeModels, server: FaultServer) -> None:
    clock = ManualClock()

    sleeps: list[float] = []

    async def record_sleep(seconds: float) -> None:
        sleeps.append(seconds)
        clock.advance(seconds)

    models = make_models(settings_for(server), clock=clock, sleep=record_sleep)
    server.on("first", fails(429, retry_after="1", kind="rate_limit_error"), says("Here."))
    assert (await models.ask(Role.NARRATIVE, PROMPT)).model == "here/first"
    assert sleeps == [1.0]


async def test_d9_when_the_whole_chain_is_in_cooldown_the_error_has_the_time(
    make_models: MakeModels, server: FaultServer, sleeps: SleepRecorder
) -> None:
    models = make_models(settings_for(server), clock=ManualClock(), sleep=sleeps)
    for model in ("first", "second"):
        server.on(model, fails(429, retry_after="30", kind="rate_limit_error"))
    with pytest.raises(errors.ChainFailed):
        await models.ask(Role.NARRATIVE, PROMPT)
    with pytest.raises(errors.ChainFailed) as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.retry_after == pytest.approx(30)
    assert [type(failure) for failure in caught.value.failures] == [errors.RateLimited] * 2
    assert (server.count("first"), server.count("second")) == (1, 1)


async def test_d9_retry_after_can_be_a_date(
    make_models: MakeModels, server: FaultServer, sleeps: SleepRecorder
) -> None:
    models = make_models(settings_for(server, ("first",)), sleep=sleeps)
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.on("first", fails(429, retry_after=later, kind="rate_limit_error"))
    with pytest.raises(errors.RateLimited) as caught:
        await models.ask(Role.NARRATIVE, PROMPT)
    assert caught.value.retry_after is not None
    assert 60 < caught.value.retry_after <= 90
    assert server.count("first") == 1


async def test_chunks_with_unexpected_types_are_still_read(make_models: MakeModels, openai_server: FaultServer) -> None:
    async def sends_odd_types(connection: Connection) -> None:
        await connection.begin()
        await connection.event({**connection.text_event("Hello"), "created": None, "object": 7, "id": None})
        end = connection.text_event("")
        end["choices"][0]["finish_reason"] = "eos"
        await connection.event(end)
        await connection.chunk(b"data: [DONE]\n\n")
        await connection.raw(b"0\r\n\r\n")

    models = make_models(settings_for(openai_server))
    openai_server.on("first", sends_odd_types)
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.text == "Hello"
    assert answer.tokens.estimated
    assert answer.tokens.input > 0


async def test_messages_are_sent_unchanged(make_models: MakeModels, openai_server: FaultServer) -> None:
    messages = (
        PromptMessage(role="system", text="Be brief."),
        PromptMessage(role="user", text="One?"),
        PromptMessage(role="assistant", text="Two."),
        PromptMessage(role="user", text="Three?"),
    )
    await make_models(settings_for(openai_server)).ask(Role.NARRATIVE, Prompt(messages=messages))
    (request,) = openai_server.requests["first"]
    assert [(each["role"], each["content"]) for each in request["messages"]] == [
        (each.role, each.text) for each in messages
    ]
    assert request["stream"] is True


async def test_a_long_answer_is_received_completely(server: FaultServer, models: Models) -> None:
    async def counts(connection: Connection) -> None:
        await connection.begin()
        for number in range(600):
            await connection.send_text(f" {number}")
        await connection.end()

    server.on("first", counts)
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.text == "".join(f" {number}" for number in range(600))


async def test_tool_definitions_calls_and_results_are_sent(server: FaultServer, models: Models) -> None:
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
    (request,) = server.requests["first"]
    sent = json.dumps(request)
    assert "call_1" in sent
    assert "At the harbour." in sent
    assert "Look somewhere." in sent


async def test_a_requested_tool_call_is_part_of_the_answer(make_models: MakeModels, openai_server: FaultServer) -> None:
    async def calls_a_tool(connection: Connection) -> None:
        await connection.begin()
        for piece in ({"name": "look", "arguments": '{"where":'}, {"arguments": ' "mill"}'}):
            chunk = connection.text_event("")
            part = {"index": 0, "id": "call_9", "type": "function", "function": piece}
            chunk["choices"][0]["delta"] = {"tool_calls": [part]}
            await connection.event(chunk)
        end = connection.text_event("")
        end["choices"][0] |= {"delta": {}, "finish_reason": "tool_calls"}
        await connection.event(end)
        await connection.raw(b"0\r\n\r\n")

    models = make_models(settings_for(openai_server))
    openai_server.on("first", calls_a_tool)
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert answer.reason == "tool"
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == [("look", {"where": "mill"})]


async def test_an_exhausted_quota_is_not_retried_but_falls_back(
    make_models: MakeModels, openai_server: FaultServer, sleeps: SleepRecorder
) -> None:
    models = make_models(settings_for(openai_server), sleep=sleeps)
    openai_server.on("first", fails(429, kind="insufficient_quota"))
    answer = await models.ask(Role.NARRATIVE, PROMPT)
    assert (answer.model, openai_server.count("first")) == ("here/second", 1)


async def test_a_model_that_never_answers_times_out_and_falls_back(
    make_models: MakeModels, server: FaultServer, sleeps: SleepRecorder
) -> None:
    models = make_models(settings_for(server, first_token_s=1), sleep=sleeps)
    server.on("first", never_answers)
    assert (await models.ask(Role.NARRATIVE, PROMPT)).model == "here/second"
    assert server.count("first") == 3


@pytest.mark.parametrize(
    "behaviour", [hangs_after("I am", " not"), sends_byte_by_byte("I am", " not")], ids=["silent", "byte by byte"]
)
async def test_a_stalled_stream_times_out_with_the_partial_text(
    make_models: MakeModels, behaviour: Behaviour, server: FaultServer
) -> None:
    models = make_models(settings_for(server, idle_s=0.3))
    server.on("first", behaviour)
    with pytest.raises(errors.TimedOut, match="stopped sending") as caught:
        await models.stream(Role.NARRATIVE, PROMPT).finish()
    assert caught.value.partial == "I am not"
    assert server.count("second") == 0
    await asyncio.wait_for(server.client_disconnected.wait(), 60)


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


async def test_a_reset_of_an_unshown_answer_is_retried(server: FaultServer, models: Models) -> None:
    server.on("first", resets_after("I am", " half"), says("I am whole."))
    assert (await models.ask(Role.NARRATIVE, PROMPT)).text == "I am whole."


async def test_the_deadline_covers_all_attempts_and_fallbacks(make_models: MakeModels, server: FaultServer) -> None:
    models = make_models(settings_for(server))
    server.on("first", never_answers)
    server.on("second", never_answers)
    with pytest.raises(errors.ModelError) as caught:
        await models.ask(Role.NARRATIVE, PROMPT, deadline_s=0.3)
    failures = caught.value.failures if isinstance(caught.value, errors.ChainFailed) else (caught.value,)
    assert all(isinstance(failure, errors.TimedOut) for failure in failures)
    assert server.count("first") <= 1
    assert server.count("second") == 0


async def test_stopping_closes_the_providers_connection_at_once(server: FaultServer, models: Models) -> None:
    server.on("first", hangs_after("One", " two"))
    async with models.stream(Role.NARRATIVE, PROMPT) as reply:
        async for _ in reply:
            if reply.text == "One two":
                break
    await asyncio.wait_for(server.client_disconnected.wait(), 60)
    assert reply.text == "One two"


async def test_cancelling_the_task_closes_the_providers_connection_at_once(server: FaultServer, models: Models) -> None:
    server.on("first", hangs_after("One", " two"))
    reply = models.stream(Role.NARRATIVE, PROMPT)
    reading = asyncio.ensure_future(reply.finish())
    while reply.text != "One two":
        await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.wait_for(server.client_disconnected.wait(), 60)


async def test_a_chain_longer_than_three_fallbacks_is_refused(openai_server: FaultServer) -> None:
    with pytest.raises(ValueError, match="at most 4"):
        settings_for(openai_server, ("a", "b", "c", "d", "e"))


@pytest.mark.parametrize("closing", [False, True])
async def test_l8_a_stream_that_ends_without_a_finish_reason_is_truncated(
    server: FaultServer, models: Models, closing: bool
) -> None:
    server.on("first", ends_without_reason("I am", " half", closing=closing))
    with pytest.raises(errors.Unreachable) as caught:
        await models.stream(Role.NARRATIVE, PROMPT).finish()
    assert caught.value.partial == "I am half" and caught.value.retryable


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_stream_ends_with_an_answer_or_an_error_of_ours(
    server: FaultServer, make_models: MakeModels, sleeps: SleepRecorder, data: st.DataObject
) -> None:
    connection = Connection(server, {"model": "first"}, None)  # type: ignore[arg-type]
    events = [connection.text_event("Hello"), *connection.end_events(3)]
    changed = data.draw(st.lists(st.sampled_from(events).flatmap(mutated), max_size=4))
    chunks = [b"event: x\ndata: " + as_json(event) + b"\n\n" for event in changed]
    chunks += [data.draw(damaged(connection.encode(events[0])))]
    server.on("first", sends_chunks(*chunks))
    models = make_models(settings_for(server, ("first",)), sleep=sleeps)
    with suppress(errors.ModelError):
        await models.ask(Role.NARRATIVE, PROMPT)
