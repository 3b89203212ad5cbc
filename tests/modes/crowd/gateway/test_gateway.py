"""C3, C4: what the gateway admits, refuses and stores; nothing is dropped silently."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from coterie.base.clock import ManualClock
from coterie.eventstore import Store
from coterie.modes.crowd.errors import MessageRefused
from coterie.modes.crowd.events import CrowdAudited, CrowdRuled
from coterie.modes.crowd.gateway import Admission, Admitted, Gateway, RoomLimits
from coterie.modes.crowd.moderation import Moderator, read_wordlists
from coterie.modes.crowd.protocol import AuditRecord, ChatAuthor, ChatMessage, ChatPost
from coterie.modes.crowd.settings import SHIPPED_CONFIGS

MODERATOR = Moderator(read_wordlists([SHIPPED_CONFIGS / "moderation"]))
_count = iter(range(1_000_000))


def post(text: str, name: str = "ana", *, kind: str = "human", nonce: str | None = None, **fields: object) -> ChatPost:
    return ChatPost.model_validate(
        {
            "id": nonce or f"n{next(_count)}",
            "room": "den",
            "author": {"name": name, "kind": kind},
            "text": text,
            **fields,
        }
    )


@pytest.fixture
def open_gateway(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Gateway]]:
    stores: list[Store] = []

    def opened(**limits: object) -> Gateway:
        while stores:
            stores.pop().close()
        store = Store.open(tmp_path / "coterie.db", clock=clock)
        stores.append(store)
        admission = Admission(
            "den", MODERATOR, RoomLimits.model_validate(limits), emotes={"catNod"}, names=["moss_granny"]
        )
        return Gateway(store, admission, clock)

    yield opened
    while stores:
        stores.pop().close()


async def audits(gateway: Gateway) -> list[AuditRecord]:
    await gateway.flush()
    events = await gateway._store.read("room:den", kinds=["crowd_audited"])
    return [event.payload.record for event in events if isinstance(event.payload, CrowdAudited)]


async def refusal(gateway: Gateway, sent: ChatPost) -> MessageRefused:
    with pytest.raises(MessageRefused) as caught:
        await gateway.post(sent)
    assert caught.value.what
    assert caught.value.fix
    return caught.value


async def test_c3_a_message_is_numbered_parsed_and_durable(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    message = await gateway.post(post("  hi @MOSS_granny catNod ", future_field=7))
    assert (message.id, message.number, message.text) == ("den-1", 1, "hi @MOSS_granny catNod")
    assert (message.mentions, message.emotes) == (("moss_granny",), ("catNod",))
    assert message.model_extra == {"future_field": 7}
    again = open_gateway()
    await again.recover()
    assert again.latest(5) == [message]
    assert (await again.post(post("next"))).number == 2


async def test_c3_the_same_post_twice_is_one_message_even_after_a_restart(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    first = await gateway.post(post("once", nonce="x"))
    assert await gateway.post(post("once", nonce="x")) == first
    assert (await gateway.post(post("other", "bo", nonce="x"))).number == 2
    again = open_gateway()
    await again.recover()
    assert await again.post(post("once", nonce="x")) == first
    assert again.admission.last_number == 2


@pytest.mark.parametrize(
    ("sent", "rule"),
    [
        (post("two\nlines"), "shape"),
        (post("   "), "shape"),
        (post("x" * 501), "length"),
        (post("hello to you").model_copy(update={"room": "else"}), "room"),
        (post("see evil.xyz"), "links"),
        (post("k y s"), "blocklist:vile"),
    ],
)
async def test_c4_bad_input_gets_a_typed_error_and_an_audit_record(
    open_gateway: Callable[..., Gateway], sent: ChatPost, rule: str
) -> None:
    gateway = open_gateway()
    assert (await refusal(gateway, sent)).rule == rule
    (record,) = await audits(gateway)
    assert (record.action, record.rule, record.message) == ("refused", rule, sent.id)
    assert sent.text not in record.reason
    assert gateway.latest(9) == []


async def test_c16_a_redaction_is_audited_with_the_message(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    message = await gateway.post(post("mail me at ana@example.org"))
    assert message.text == "mail me at [email]"
    (record,) = await audits(gateway)
    assert (record.action, record.rule, record.message) == ("redacted", "redact:email", "den-1")
    raw = gateway._store.query("SELECT group_concat(payload) FROM event")[0][0]
    assert "ana@example.org" not in raw


async def test_c16_personas_are_refused_what_is_flagged_for_people(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    assert (await gateway.post(post("oh damn"))).number == 1
    assert (await refusal(gateway, post("oh damn", "moss_granny", kind="persona"))).rule == "blocklist:mild"
    assert [record.action for record in await audits(gateway)] == ["flagged", "refused"]


async def test_c3_rate_limit_per_author_refills(open_gateway: Callable[..., Gateway], clock: ManualClock) -> None:
    gateway = open_gateway(burst=2, per_minute=30)
    for _ in range(2):
        await gateway.post(post("hi"))
    error = await refusal(gateway, post("hi"))
    assert (error.rule, error.retry_after_s) == ("rate", 2.0)
    await gateway.post(post("me too", "bo"))
    clock.advance(2)
    await gateway.post(post("hi"))
    assert (await refusal(gateway, post("hi"))).rule == "rate"


async def test_c3_slow_mode_followers_timeouts_and_bans(
    open_gateway: Callable[..., Gateway], clock: ManualClock
) -> None:
    gateway = open_gateway(slow_mode_s=10)
    await gateway.post(post("one"))
    assert (await refusal(gateway, post("two"))).rule == "slow"
    clock.advance(10)
    await gateway.post(post("two"))
    now = gateway.now_ms()
    await gateway.moderate(CrowdRuled(what="slow", at_ms=now, seconds=0))
    await gateway.moderate(CrowdRuled(what="timeout", at_ms=now, who="Ana", seconds=60, reason="flooding"))
    error = await refusal(gateway, post("three"))
    assert (error.rule, error.retry_after_s) == ("timeout", 60.0)
    clock.advance(61)
    await gateway.post(post("three"))
    await gateway.moderate(CrowdRuled(what="ban", at_ms=now, who="ana"))
    assert (await refusal(gateway, post("four"))).rule == "ban"
    await gateway.moderate(CrowdRuled(what="pardon", at_ms=now, who="ana"))
    await gateway.moderate(CrowdRuled(what="followers", at_ms=now))
    assert (await refusal(gateway, post("four"))).rule == "followers"
    await gateway.moderate(CrowdRuled(what="follow", at_ms=now, who="ana"))
    await gateway.post(post("four"))
    ruled = [(record.action, record.rule) for record in await audits(gateway) if record.by == "moderator"]
    assert ruled[:2] == [("setting", "slow"), ("timeout", "timeout")]
    assert ("ban", "ban") in ruled


async def test_c16_the_kill_switch_survives_a_restart(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    await gateway.moderate(CrowdRuled(what="kill", at_ms=0, reason="raid"))
    assert (await refusal(gateway, post("hello"))).rule == "killed"
    assert (await refusal(gateway, post("hello", "moss_granny", kind="persona"))).rule == "killed"
    await gateway.flush()
    again = open_gateway()
    await again.recover()
    assert (await refusal(again, post("hello"))).rule == "killed"
    await again.moderate(CrowdRuled(what="revive", at_ms=1))
    assert (await again.post(post("hello"))).number == 1


async def test_c3_a_returning_reader_gets_missed_messages(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = open_gateway(burst=1_000)
    for number in range(40):
        await gateway.post(post(f"line {number}"))
    assert [message.number for message in await gateway.after(37)] == [38, 39, 40]
    monkeypatch.setattr("coterie.modes.crowd.gateway.gateway._PAGE_SIZE", 7)
    while len(gateway._recent) > 3:
        gateway._recent.popleft()
    assert [message.number for message in await gateway.after(20)] == list(range(21, 41))
    assert [message.number for message in await gateway.after(0)] == list(range(1, 41))
    assert await gateway.after(40) == []


async def test_c2_messages_are_published_after_the_commit_in_order(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway(burst=100)
    async with gateway._store.bus.subscribe("chat.firehose.den") as firehose:
        answers = [gateway.post(post(f"line {number}")) for number in range(20)]
        published = [(await anext(firehose)).body for _ in answers]
    assert published == [await answer for answer in answers]
    assert [message.number for message in published] == list(range(1, 21))


def create_admission() -> Admission:
    limits = RoomLimits(burst=1_000_000, per_minute=1_000_000)
    return Admission("den", MODERATOR, limits, emotes={"catNod"}, names=["moss_granny"])


@given(
    st.text(min_size=1, max_size=600),
    st.dictionaries(st.sampled_from([*ChatMessage.model_fields, "mood", "x"]), st.integers() | st.text()),
)
def test_c1_admitted_messages_match_the_schema(text: str, extra: dict[str, object]) -> None:
    """Admission builds messages without validating them again, so this does."""
    own = {name: value for name, value in extra.items() if name not in ChatPost.model_fields}
    sent = post(f"@moss_granny {text}").model_dump(exclude_none=True)
    decision = create_admission().admit(ChatPost.model_validate({**sent, **own}), now_ms=7)
    if isinstance(decision, Admitted):
        message = decision.message
        assert ChatMessage.from_json(message.to_json()).model_dump() == message.model_dump()
        assert list(json.loads(message.to_json()))[:3] == ["id", "number", "room"]
        assert (message.number, message.ts, message.mentions) == (1, 7, ("moss_granny",))
        assert message.model_extra == {name: value for name, value in own.items() if name in ("mood", "x")}


def test_c1_invalid_unicode_is_rejected() -> None:
    with pytest.raises(ValidationError):
        post("a lone half \ud800")


def test_c3_copies_of_messages_are_independent() -> None:
    admission = create_admission()
    first, second = (admission.admit(post(text), now_ms=7) for text in ("catNod one", "two"))
    assert isinstance(first, Admitted)
    assert isinstance(second, Admitted)
    changed = first.message.model_copy(update={"text": "else", "beside": 1})
    assert (first.message.text, changed.text, second.message.text) == ("catNod one", "else", "two")
    assert first.message.emotes == ("catNod",)
    assert first.message.model_fields_set == second.message.model_fields_set == set(ChatMessage.model_fields)
    assert first.message.model_extra == second.message.model_extra == {}


def test_c3_only_full_buckets_are_dropped() -> None:
    from coterie.modes.crowd.gateway.admission import TokenBuckets

    buckets = TokenBuckets(RoomLimits(burst=1, per_minute=60))
    assert buckets.take("ana", 0) == 0
    for number in range(50_100):
        buckets.take(f"u{number}", 5_000)
    assert buckets.take("u50099", 5_000) > 0
    assert ChatAuthor(name="x", kind="human").badges == ()


class FailingStore:
    """A store whose appends fail as often as told, then works."""

    def __init__(self, store: Store, failures: int) -> None:
        self._store = store
        self._failures = failures

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def append(self, events: object) -> object:
        if self._failures:
            self._failures -= 1
            raise OSError("no space left on device")
        return await self._store.append(events)  # type: ignore[arg-type]


async def test_c3_a_post_that_could_not_be_stored_is_stored_when_it_is_sent_again(
    open_gateway: Callable[..., Gateway],
) -> None:
    gateway = open_gateway()
    gateway._store = FailingStore(gateway._store, failures=1)  # type: ignore[assignment]
    answers = [gateway.post(post("once", nonce="x")), gateway.post(post("once", nonce="x"))]
    for answer in answers:
        with pytest.raises(OSError, match="space"):
            await answer
    assert (gateway.latest(9), gateway.failed_writes) == ([], 1)
    message = await gateway.post(post("once", nonce="x"))
    assert (message.number, gateway.latest(9)) == (1, [message])


async def test_c3_a_ruling_that_could_not_be_stored_raises(open_gateway: Callable[..., Gateway]) -> None:
    gateway = open_gateway()
    gateway._store = FailingStore(gateway._store, failures=1)  # type: ignore[assignment]
    with pytest.raises(OSError, match="space"):
        await gateway.moderate(CrowdRuled(what="slow", at_ms=0, seconds=3))


async def test_c3_posts_beyond_the_queue_are_refused(
    open_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.modes.crowd.gateway.gateway.MAX_WAITING_POSTS", 10)
    gateway = open_gateway(burst=1_000)
    answers = [gateway.post(post(f"line {number}")) for number in range(30)]
    await gateway.flush()
    refused = [answer.exception() for answer in answers if answer.exception() is not None]
    assert {error.rule for error in refused if isinstance(error, MessageRefused)} == {"busy"}
    assert (len(refused), gateway.overflows, gateway.admission.last_number) == (20, 20, 10)
    assert (await gateway.post(post("later"))).number == 11
