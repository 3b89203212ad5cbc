"""Streamed replies: however one ends, its text and the reason are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from coterie.base.clock import ManualClock
from coterie.base.errors import StorageError
from coterie.base.redaction import redact
from coterie.conversation.errors import Busy
from coterie.conversation.events import AssistantTokens, AssistantTurn, AssistantTurnStarted
from coterie.conversation.replies import FLUSH_TOKENS, LiveText
from coterie.eventstore import AnyEvent, NewEvent
from coterie.llm.messages import Chunk, CompletionRequest, Finished, TextDelta, Tokens
from coterie.llm.recording import RecordedCall, RecordedError
from coterie.modes.story.events import PromptSent
from tests.modes.story.conftest import ScriptedModel, StoryHarness


class ManualProvider:
    """A provider that says a word whenever the test lets it."""

    name = "embedded"

    def __init__(self, script: ScriptedModel) -> None:
        self.script = script
        self.words: asyncio.Queue[str | None] = asyncio.Queue()
        self.asked = asyncio.Event()

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[Chunk, None]:
        if request.prompt.output_schema is not None:
            for _, chunk in self.script.answer(request).all_chunks():
                yield chunk
            return
        self.asked.set()
        while (word := await self.words.get()) is not None:
            yield TextDelta(text=word)
        yield Finished(reason="stop", tokens=Tokens(output=1), model="hand")

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def script() -> ScriptedModel:
    return ScriptedModel()


@pytest.fixture
async def harness(tmp_path: Path, clock: ManualClock, script: ScriptedModel) -> AsyncIterator[StoryHarness]:
    harness = StoryHarness(tmp_path / "coterie.db", clock, script)
    yield harness
    harness.verify()
    await harness.close()


async def use_manual_provider(harness: StoryHarness, script: ScriptedModel) -> tuple[ManualProvider, str]:
    provider = ManualProvider(script)
    harness.models._overrides["embedded"] = provider
    return provider, await harness.start_chat(await harness.create_character())


def hold_reply_starts(harness: StoryHarness, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Nothing that begins a reply is recorded before this is set."""
    append, gate = harness.store.append, asyncio.Event()

    async def slow(new_events: Sequence[NewEvent], **more: Any) -> list[AnyEvent]:
        if any(isinstance(event.payload, AssistantTurnStarted) for event in new_events):
            await gate.wait()
        return await append(new_events, **more)

    monkeypatch.setattr(harness.store, "append", slow)
    return gate


async def test_s12_no_text_is_published_before_the_start_is_durable(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, room = await use_manual_provider(harness, script)
    provider.words.put_nowait("At once.")
    gate = hold_reply_starts(harness, monkeypatch)
    task = asyncio.create_task(harness.story.send_message(room, "Hello."))
    await provider.asked.wait()
    await asyncio.sleep(0.05)
    assert [event.kind for event in await harness.store.read(room)][-1] == "user_turn", "the model is asked meanwhile"
    live = harness.story.replies.partial(room)
    assert live is None or live.text == ""
    gate.set()
    started = await task
    provider.words.put_nowait(None)
    await harness.story.replies.wait(room)
    assert harness.story.timeline.turn(room, started.reply).text == "At once."


async def test_s12_a_reply_goes_on_if_the_caller_is_cancelled(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, room = await use_manual_provider(harness, script)
    gate = hold_reply_starts(harness, monkeypatch)
    task = asyncio.create_task(harness.story.send_message(room, "Hello."))
    await provider.asked.wait()
    task.cancel()
    gate.set()
    provider.words.put_nowait("Still here.")
    provider.words.put_nowait(None)
    await harness.story.replies.wait(room)
    (turn,) = harness.story.timeline.latest(room, 1)
    assert (turn.text, turn.state) == ("Still here.", "done")


async def test_s12_a_start_that_cannot_be_recorded_leaves_nothing(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, room = await use_manual_provider(harness, script)
    provider.words.put_nowait("Never heard.")
    append = harness.store.append

    async def full(new_events: Sequence[NewEvent], **more: Any) -> list[AnyEvent]:
        if any(isinstance(event.payload, AssistantTurnStarted) for event in new_events):
            raise StorageError("The disk is full.", "Make room.")
        return await append(new_events, **more)

    with monkeypatch.context() as broken:
        broken.setattr(harness.store, "append", full)
        with pytest.raises(StorageError):
            await harness.story.send_message(room, "Hello.")
        await harness.story.replies.wait(room)
    assert not harness.story.replies.is_running(room) and harness.story.replies.partial(room) is None
    assert [event.kind for event in await harness.store.read(room)][-1] == "user_turn"
    started = await harness.story.send_message(room, "Once more.")
    provider.words.put_nowait("Heard.")
    provider.words.put_nowait(None)
    await harness.story.replies.wait(room)
    assert harness.story.timeline.turn(room, started.reply).state == "done"


async def test_s12_the_message_is_durable_before_the_model_is_called(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    provider, room = await use_manual_provider(harness, script)
    started = await harness.story.send_message(room, "Hello.")
    await provider.asked.wait()
    kinds = [event.kind for event in await harness.store.read(room)][-3:]
    assert kinds == ["user_turn", "assistant_turn_started", "prompt_sent"]
    with pytest.raises(Busy):
        await harness.story.send_message(room, "And another thing.")
    provider.words.put_nowait("Yes.")
    provider.words.put_nowait(None)
    await harness.story.replies.wait(room)
    turn = harness.story.timeline.turn(room, started.reply)
    assert (turn.text, turn.state, turn.why) == ("Yes.", "done", "")


async def test_s12_stopping_keeps_the_partial_text(harness: StoryHarness, script: ScriptedModel) -> None:
    provider, room = await use_manual_provider(harness, script)
    started = await harness.story.send_message(room, "Hello.")
    async with harness.store.bus.subscribe("live.>") as live:
        provider.words.put_nowait("I was ")
        await anext(live)
        provider.words.put_nowait("about to")
        await anext(live)
    assert await harness.story.stop(room)
    turn = harness.story.timeline.turn(room, started.reply)
    assert (turn.text, turn.state, turn.why) == ("I was about to", "truncated", "stopped")
    assert not await harness.story.stop(room)


async def test_s12_tokens_are_published_in_batches_and_none_is_held_back(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.conversation.replies.NOTIFY_S", 0.02)
    provider, room = await use_manual_provider(harness, script)
    await harness.story.send_message(room, "Hello.")
    said = [f"{number} " for number in range(300)]
    async with harness.store.bus.subscribe("live.>", limit=1_000) as live:
        for word in said:
            provider.words.put_nowait(word)
        published: list[LiveText] = []
        # The model now says nothing for as long as we listen: what it said last is told all the same.
        while sum(len(one.text) for one in published) < len("".join(said)):
            published.append((await anext(live)).body)
    assert "".join(one.text for one in published) == "".join(said)
    assert [one.offset for one in published] == [
        len("".join(one.text for one in published[:at])) for at in range(len(published))
    ]
    assert len(published) < len(said)
    await harness.story.stop(room)


@pytest.mark.parametrize("kind", ["ServerFault", "RateLimited", "KeyRejected", "Unreachable"])
async def test_s12_a_provider_error_keeps_the_text_and_the_reason(
    harness: StoryHarness, script: ScriptedModel, kind: str
) -> None:
    room = await harness.start_chat(await harness.create_character())
    script.faults = [RecordedCall(say="So far so", error=RecordedError(kind=kind, what="The line went dead."))]
    started = await harness.say(room, "Hello.")
    turn = harness.story.timeline.turn(room, started.reply)
    assert (turn.text, turn.state) == ("So far so", "truncated")
    assert "The line went dead." in turn.why
    await harness.regenerate(room)
    assert harness.story.timeline.latest(room, 1)[0].state == "done"


async def test_s12_at_most_64_tokens_are_not_durable(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.conversation.replies.NOTIFY_S", 0)
    provider, room = await use_manual_provider(harness, script)
    started = await harness.story.send_message(room, "Hello.")
    words = [f"{number} " for number in range(FLUSH_TOKENS * 2 + 10)]
    async with harness.store.bus.subscribe("live.>", limit=1_000) as live:
        for number, word in enumerate(words, start=1):
            provider.words.put_nowait(word)
            await anext(live)
            # The flush is awaited before the next word is taken: what came before the last batch is in the log.
            durable = harness.story.timeline.turn(room, started.reply).text
            assert len("".join(words[:number])) - len(durable) <= len("".join(words[-FLUSH_TOKENS:]))
            assert "".join(words[:number]).startswith(durable)
    await harness.story.stop(room)


async def test_s12_text_becomes_durable_during_a_pause(
    harness: StoryHarness, script: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.conversation.replies.FLUSH_S", 0.001)
    provider, room = await use_manual_provider(harness, script)
    started = await harness.story.send_message(room, "Hello.")
    async with harness.store.bus.subscribe("event.>", limit=100) as events:
        provider.words.put_nowait("One word, then nothing")
        async for message in events:
            if isinstance(message.body.payload, AssistantTokens):
                break
    assert harness.story.timeline.turn(room, started.reply).text == "One word, then nothing"
    await harness.story.stop(room)


async def test_s12_a_crash_leaves_a_reply_that_is_closed_with_its_partial_text(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    mara = await harness.create_character()
    room = await harness.start_chat(mara)
    started = AssistantTurnStarted(reply="r1", speaker=mara.id)
    await harness.store.append(
        [
            NewEvent(room, started, mara.id, turn="r1"),
            NewEvent(room, AssistantTokens(reply="r1", text="It was a dark "), mara.id, turn="r1"),
            NewEvent(room, AssistantTokens(reply="r1", text="and"), mara.id, turn="r1"),
        ]
    )
    harness.store.close()
    harness.open()
    assert await harness.story.recover() == 1
    assert await harness.story.recover() == 0
    turn = harness.story.timeline.turn(room, "r1")
    assert (turn.text, turn.state, turn.why) == ("It was a dark and", "truncated", "restart")
    await harness.run_jobs()
    assert harness.memories_of(mara.id) == ["It was a dark and"]


async def test_s12_a_message_that_a_crash_left_unanswered_is_answered_once(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    room = await harness.start_chat(await harness.create_character())
    started = await harness.say(room, "Hello.", key="one")
    again = await harness.say(room, "Hello.", key="one")
    assert again == started
    assert len(script.asked) == 1
    # As if the process had died right after the message was recorded.
    seqs = await harness.store.turn_seqs(room, started.reply)
    await harness.store.supersede(room, drop=seqs)
    third = await harness.say(room, "Hello.", key="one")
    assert (third.turn, third.reply != started.reply) == (started.turn, True)
    assert len(harness.texts(room)) == 2
    await harness.store.supersede(room, drop=await harness.store.turn_seqs(room, third.reply))
    await harness.regenerate(room)
    assert len(harness.texts(room)) == 2


async def test_s12_a_repeated_message_during_the_reply_is_no_second_turn(
    harness: StoryHarness, script: ScriptedModel
) -> None:
    provider, room = await use_manual_provider(harness, script)
    started = await harness.story.send_message(room, "Hello.", key="one")
    assert await harness.story.send_message(room, "Hello.", key="one") == started
    provider.words.put_nowait("Yes.")
    provider.words.put_nowait(None)
    await harness.story.replies.wait(room)
    assert harness.texts(room) == ["Hello.", "Yes."]


async def test_s12_two_windows_cannot_both_begin_a_turn(harness: StoryHarness, script: ScriptedModel) -> None:
    provider, room = await use_manual_provider(harness, script)
    results = await asyncio.gather(
        *(harness.story.send_message(room, f"Window {number}.") for number in range(5)), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["Busy", "Busy", "Busy", "Busy", "StartedTurn"]
    provider.words.put_nowait("Yes.")
    provider.words.put_nowait(None)
    await harness.story.replies.wait(room)
    assert len(harness.texts(room)) == 2


@pytest.mark.parametrize("key", ["sk-aaaabbbbccccddddeeeeffff", "plain-words-that-look-like-nothing"])
async def test_s29_a_key_is_in_no_event_error_or_prompt(harness: StoryHarness, script: ScriptedModel, key: str) -> None:
    redact.register(key)
    room = await harness.start_chat(await harness.create_character())
    script.faults = [
        RecordedCall(say="Well,", error=RecordedError(kind="KeyRejected", what=f"The provider refused {key}."))
    ]
    started = await harness.say(room, f"Hello, my key is {key}.")
    assert "[secret]" in harness.story.timeline.turn(room, started.reply).why
    await harness.regenerate(room, text=f"I mean {key}!")
    assert harness.texts(room)[0] == "I mean [secret]!"
    await harness.story.close_scene(room)
    published = harness.store.query("SELECT count(*) FROM event WHERE instr(payload, ?)", (key,))
    assert published == [(0,)]
    asked = [*script.asked, *script.classified]
    assert not [request for request in asked if key in request.model_dump_json()]
    sent = [event.payload for event in await harness.store.read(room) if isinstance(event.payload, PromptSent)]
    assert sent
    assert key not in "".join(part.model_dump_json() for part in sent)


async def test_s12_a_reply_that_ended_is_recorded_once(harness: StoryHarness) -> None:
    room = await harness.start_chat(await harness.create_character())
    await harness.say(room, "Hello.")
    ended = [event for event in await harness.store.read(room) if isinstance(event.payload, AssistantTurn)]
    assert len(ended) == 1
