"""Encrypted rooms between devices of ours, with malicious homeservers and users, and crashes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from coterie.base.errors import DiskFull
from coterie.eventstore.sqlite.database import KeyStore
from coterie.surfaces.matrix.crypto import key_requests, machine, megolm
from coterie.surfaces.matrix.crypto.key_requests import KEY_REQUEST
from coterie.surfaces.matrix.homeserver import Json, KeysRefused, MatrixRefused
from tests.surfaces.matrix.crypto.conftest import ROOM, Party, Post, receive

Make = Callable[[str, str], Party]


async def two(party: Make) -> tuple[Party, Party]:
    ana, bot = party("@ana", "PHONE"), party("@bot", "HOUSE")
    await ana.arrive()
    await bot.arrive()
    return ana, bot


async def test_p7_both_directions_across_crashes(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    for n in range(5):
        await ana.say(f"a{n}", f"ta{n}")
        await bot.collect()
        assert bot.read(post.said[-1]) == f"a{n}"
        bot.crash()
        await bot.say(f"b{n}", f"tb{n}")
        await ana.collect()
        assert ana.read(post.said[-1]) == f"b{n}"
        ana.crash()
    assert len({event["content"]["session_id"] for event in post.said}) == 2, "keys survive restarts"
    assert all(event["type"] == "m.room.encrypted" for event in post.said)


async def test_p7_a_crash_between_receiving_a_key_and_recording_the_sync_loses_nothing(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    await ana.say("hello", "t")
    mail = list(post.mail["@bot", "HOUSE"])
    await bot.collect()
    bot.crash()
    post.mail["@bot", "HOUSE"] += mail  # the homeserver tells it again
    claimed = len(post.once["@ana", "PHONE"])
    await bot.collect()
    assert bot.read(post.said[-1]) == "hello"
    assert len(post.once["@ana", "PHONE"]) == claimed, "what was opened before is not taken for a broken line"


async def test_p7_a_crash_during_a_write_leaves_it_undone(
    party: Make, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana, bot = await two(party)
    await ana.say("hello", "t")
    mail = list(post.mail["@bot", "HOUSE"])

    def full(*_: object) -> None:
        raise DiskFull("The disk is full.", "Free some space.")

    with monkeypatch.context() as patch, pytest.raises(DiskFull):
        patch.setattr(KeyStore, "put", full)
        await receive(bot.crypto, {"to_device": {"events": mail}})
    bot.crash()
    await bot.collect()
    assert bot.read(post.said[-1]) == "hello"


async def test_p7_an_event_waits_for_its_key_across_a_restart(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    await ana.say("early", "t1")
    await ana.say("bird", "t2")
    late = list(post.mail["@bot", "HOUSE"])
    post.mail["@bot", "HOUSE"].clear()
    assert [bot.read(event) for event in post.said] == [None, None] and bot.crypto.has_pending
    bot.crash()
    assert await bot.collect() == []
    post.mail["@bot", "HOUSE"] += late
    opened = await bot.collect()
    assert [event["content"]["body"] for _, event in opened] == ["early", "bird"], "in the order it was said"
    assert len(await bot.collect()) == 2, "also where the line broke after it was opened"
    bot.crash()
    again = await bot.collect()
    assert [event["event_id"] for _, event in again] == ["$e0", "$e1"], "not released yet: returned again"
    bot.crypto.release(again)
    bot.crash()
    assert await bot.collect() == [] and not bot.crypto.has_pending


async def test_p7_a_missing_key_is_requested_and_sent_again(
    party: Make, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "REQUEST_AFTER_S", -1.0)
    ana, bot = await two(party)
    await ana.say("lost on the way", "t")
    post.mail["@bot", "HOUSE"].clear()
    assert bot.read(post.said[-1]) is None
    assert await bot.crypto.request_missing_keys() == []
    assert [event["type"] for event in post.mail["@ana", "PHONE"]] == [KEY_REQUEST]
    await ana.collect()
    ((_, event),) = await bot.collect()
    assert event["content"]["body"] == "lost on the way"
    monkeypatch.setattr(machine, "NOTIFY_AFTER_S", -1.0)
    (lost,) = await bot.crypto.request_missing_keys()
    assert lost.sender == "@ana"
    bot.crypto.mark_notified(lost)
    assert await bot.crypto.request_missing_keys() == [], "notified once"


async def test_p7_a_key_is_sent_again_only_to_devices_that_had_it(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    await ana.say("between us", "t")
    session = post.said[-1]["content"]["session_id"]
    eve = party("@eve", "X")
    await eve.arrive()
    body = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": ROOM, "session_id": session}
    asked = {"action": "request", "requesting_device_id": "X", "request_id": "1", "body": body}
    await eve.line.send_to_device(KEY_REQUEST, {"@ana": {"PHONE": asked}}, "x")
    await eve.line.send_to_device(KEY_REQUEST, {"@ana": {"PHONE": {**asked, "requesting_device_id": "HOUSE"}}}, "y")
    await eve.line.send_to_device(KEY_REQUEST, {"@ana": {"PHONE": {"action": "request", "body": "nonsense"}}}, "z")
    await ana.collect()
    assert post.mail["@eve", "X"] == []
    assert bot.crypto.own.user == "@bot"


async def test_p7_events_of_a_forged_sender_are_not_decrypted(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    eve = party("@eve", "X")
    await eve.arrive()
    await eve.say("I am Ana", "t")
    await bot.collect()
    forged = {**post.said[-1], "sender": "@ana"}
    assert bot.read(forged) is None and bot.read(post.said[-1]) == "I am Ana"
    replayed = {**post.said[-1], "event_id": "$other"}
    assert bot.read(replayed) is None, "a place in a key's row is one event"
    elsewhere = copy.deepcopy(post.said[-1])
    assert bot.crypto.decrypt("!other", elsewhere) is None
    assert ana.crypto.own.user == "@ana"


async def test_p7_forged_devices_get_no_keys(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    await bot.say("one", "t1")
    mallory = party("@mallory", "M")
    await mallory.arrive()
    theirs = post.devices["@mallory"]["M"]
    post.devices["@ana"]["FAKE"] = {**theirs, "user_id": "@ana", "device_id": "FAKE"}
    post.devices["@ana"]["PHONE"] = {**post.devices["@ana"]["PHONE"], "keys": theirs["keys"]}
    post.present.discard("@mallory")
    await bot.collect(device_lists={"changed": ["@ana"]})
    await bot.say("two", "t2")
    assert post.mail["@ana", "FAKE"] == []
    post.once["@ana", "NEW"] = {"signed_curve25519:1": {"key": "AAAA", "signatures": {}}}
    laptop = party("@ana", "NEW")
    post.devices["@ana"]["NEW"] = laptop.crypto.own.keys()
    await bot.collect(device_lists={"changed": ["@ana"]})
    await bot.say("three", "t3")
    assert post.mail["@ana", "NEW"] == [], "an unsigned one-time key is not used"
    await ana.collect()


async def test_p7_malformed_to_device_messages_stop_nothing(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    await ana.say("first", "t1")
    good = post.mail["@bot", "HOUSE"].pop()
    broken = copy.deepcopy(good)
    broken["content"]["ciphertext"][bot.crypto.own.curve25519]["body"] = "AAAA"
    nonsense: list[Json] = [
        *(
            {"type": "m.room.encrypted", "sender": "@ana", "content": content}
            for content in ({}, "x", {"ciphertext": 3})
        ),
        {"type": "m.room.encrypted"},
        {"type": KEY_REQUEST, "sender": "@ana", "content": {"action": "request"}},
        {**good, "sender": "@eve"},
        broken,
    ]
    post.mail["@bot", "HOUSE"] += [*nonsense, good]
    await bot.collect()
    assert bot.read(post.said[-1]) == "first"
    for content in ({}, {"algorithm": "m.megolm.v1.aes-sha2"}, {"algorithm": "x", "ciphertext": "y"}, "words"):
        event = {"type": "m.room.encrypted", "sender": "@ana", "event_id": "$x", "content": content}
        assert bot.crypto.decrypt(ROOM, event) in (None, event)


async def test_p7_a_broken_session_is_replaced(party: Make, post: Post) -> None:
    ana, bot = await two(party)
    await ana.say("first", "t1")
    await bot.collect()
    keystore = bot.crypto._keystore
    keystore.put({("olm", name): None for name in keystore.entries("olm")})
    bot.crash()
    ana.crypto.outbound.discard_key(ROOM)
    await bot.say("and I", "t2")
    await ana.collect()
    ana.crypto.outbound.discard_key(ROOM)
    await ana.say("second", "t3")
    await bot.collect()
    assert bot.read(post.said[-1]) == "second"


async def test_p7_keys_are_replaced_after_use_and_when_a_member_leaves(
    party: Make, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(megolm, "_MAX_MESSAGES", 3)
    ana, bot = await two(party)
    eve = party("@eve", "X")
    await eve.arrive()
    for n in range(4):
        await bot.say(f"m{n}", f"t{n}")
    sessions = [event["content"]["session_id"] for event in post.said]
    assert sessions[0] == sessions[2] != sessions[3]
    post.present.discard("@eve")
    bot.crypto.forget_members(ROOM)
    await bot.say("without her", "t9")
    await eve.collect()
    await ana.collect()
    assert post.said[-1]["content"]["session_id"] != sessions[3]
    assert eve.read(post.said[-1]) is None and ana.read(post.said[-1]) == "without her"


async def test_p4_a_token_is_encrypted_once_and_forgotten_after_the_next(party: Make, post: Post) -> None:
    _, bot = await two(party)
    first = await bot.say("once", "t1")
    bot.crash()
    assert await bot.say("something else", "t1") == first and len(post.said) == 1
    await bot.say("next", "t2")
    assert list(bot.crypto._keystore.entries("sent")) == [f"{ROOM} t2"]


async def test_p7_one_time_keys_are_replenished_across_a_crash(party: Make, post: Post) -> None:
    bot = party("@bot", "HOUSE")
    await bot.arrive()
    keys = post.once["@bot", "HOUSE"]
    assert len(keys) == 50
    for name in list(keys)[:40]:
        del keys[name]
    original = type(bot.line).upload_keys

    async def cut(line: object, body: Json) -> None:
        await original(bot.line, body)
        raise OSError("the line broke after it was taken")

    with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="line"):
        patch.setattr(type(bot.line), "upload_keys", cut)
        await bot.collect()
    taken = dict(keys)
    bot.crash()
    keys.popitem()
    post.once["@bot", "HOUSE"] = dict(list(keys.items())[:10])
    await bot.collect()
    again = post.once["@bot", "HOUSE"]
    assert all(again[name] == key for name, key in taken.items() if name in again), "never another key by that name"


async def test_p7_an_old_copy_of_the_keys_is_detected_and_replaced(party: Make, post: Post) -> None:
    bot = party("@bot", "HOUSE")
    await bot.arrive()
    post.once["@bot", "HOUSE"].clear()

    async def refuse(*_: object) -> None:
        raise MatrixRefused("M_UNKNOWN", "One time key already exists")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(bot.line), "upload_keys", refuse)
        with pytest.raises(KeysRefused):
            await bot.collect()
        bot.crash()
        with pytest.raises(MatrixRefused):
            await bot.crypto.own.publish(bot.line)
    before = bot.crypto.own.curve25519
    machine.discard_device_keys(bot.crypto._keystore)
    bot.crash()
    await bot.crypto.own.publish(bot.line)
    assert bot.crypto.own.is_new and bot.crypto.own.curve25519 != before


async def test_pending_events_are_bounded(party: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_requests, "_MAX_PENDING", 3)
    bot = party("@bot", "HOUSE")
    await bot.arrive()
    ana = party("@ana", "PHONE")
    await ana.arrive()
    await ana.say("x", "t")
    event = bot.line.post.said[-1]
    for n in range(9):
        assert bot.crypto.decrypt(ROOM, {**event, "event_id": f"${n}"}) is None
    assert len(bot.crypto._keystore.entries("held")) == 3
