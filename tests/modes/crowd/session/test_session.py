"""C6, C7, C8, C15, C17, C20: decisions to speak, damping, line rules and reproducible sessions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.loop import longest_chain, near_duplicates, reproduction
from coterie.eventstore import NewEvent, Store
from coterie.llm import Models, ModelsSettings
from coterie.llm.messages import CompletionRequest
from coterie.llm.recording import RecordedCall, ReplayProvider
from coterie.modes.crowd.chat_signals import TrendTracker
from coterie.modes.crowd.decisions import Decision, derive_random
from coterie.modes.crowd.errors import BadRecording
from coterie.modes.crowd.events import CrowdGoverned, CrowdSaid, CrowdTicked, SpeakDecision, room_stream
from coterie.modes.crowd.gateway import RoomLimits
from coterie.modes.crowd.generation import LineRules, model_lines_from_thread
from coterie.modes.crowd.moderation import ModerationPolicy
from coterie.modes.crowd.prompts import LineRequest, build_instructions
from coterie.modes.crowd.protocol import ChatAuthor, ChatMessage
from coterie.modes.crowd.session.replay import Replay, firehose_hash
from coterie.modes.crowd.session.stream_context import StreamScript, StreamScriptLine
from coterie.modes.crowd.settings import CrowdConfigs, RoomConfig
from tests.modes.crowd.conftest import START, Play


def message(number: int, text: str, at: float, kind: str = "human", **fields: object) -> ChatMessage:
    return ChatMessage.model_validate(
        {
            "id": f"r-{number}",
            "number": number,
            "room": "r",
            "author": ChatAuthor(name="ana", kind=kind),
            "text": text,
            "ts": round(at * 1_000),
            **fields,
        }
    )


def test_c6_every_decision_has_its_factors(play: Play) -> None:
    simulation = play(3)
    thoughts = simulation.session.recent_decisions["frame_perfect"]
    assert len(thoughts) == 120
    spoken = [each for ticked in simulation.events if isinstance(ticked, CrowdTicked) for each in ticked.spoke]
    assert spoken
    for decided in spoken:
        parts = decided.parts
        product = (
            parts["base"] * parts["event"] * parts["interest"] * parts["mention"] * parts["trend"] * parts["damping"]
        )
        assert decided.p == pytest.approx(min(1.0, product), abs=1e-4)
        assert decided.roll < decided.p
    silent = [each for each in thoughts if not each.speaks]
    assert all(each.roll >= each.p or each.why_not for each in silent)


def test_c6_a_mention_by_a_person_is_answered_within_seconds_and_not_by_everyone(play: Play) -> None:
    names = ("salt_lamp", "nonna_exe", "quietstorm_", "crit_happens")
    questions = [(20 + 25 * at, f"person{at}", f"@{name} what do you think?") for at, name in enumerate(names)]
    messages = play(3, people=questions).messages
    for question in [each for each in messages if each.author.kind == "human"]:
        answers = [each for each in messages if each.reply_to == question.id]
        assert question.mentions[0] in {answer.author.name for answer in answers}
        assert len({answer.author.name for answer in answers}) <= 3
        assert min(answer.ts for answer in answers) - question.ts <= 10_000


def test_c8_without_stream_and_people_the_room_becomes_quiet(play: Play) -> None:
    assert play(20, stream=False).messages == []
    once = play(30, stream=False, people=[(5, "ana", "hello everyone, anyone here?")]).messages
    assert 1 < len(once) < 60
    assert max(each.ts for each in once) < START + 20 * 60_000


def test_c8_damping_ends_chains_of_personas(play: Play, room: RoomConfig) -> None:
    damped = play(15).messages
    assert longest_chain(damped) <= 4
    assert 0 < reproduction(damped) < 0.8
    assert near_duplicates(damped) < 0.02
    tuning = room.tuning.model_copy(update={"depth": 0.99, "bots": 0.0, "answers": 1.0, "longest_chain": 1_000})
    wild = play(15, rules=room.model_copy(update={"tuning": tuning})).messages
    assert longest_chain(wild) > 4
    assert reproduction(wild) > reproduction(damped)


def test_c15_a_hype_event_causes_many_different_lines(play: Play) -> None:
    walk = [StreamScriptLine(at=at, say="we walk a little further along the path") for at in range(0, 180, 6)]
    win = StreamScriptLine(at=121, say="yes, we did it!", event="hype")
    stream_script = StreamScript(line=tuple(sorted([*walk, win], key=lambda line: line.at)))
    before = during = after = 0
    for seed in range(4):
        messages = play(3, stream_script=stream_script, seed=seed).messages
        seconds = [(each.ts - START) / 1_000 for each in messages]
        before += sum(105 <= at < 120 for at in seconds)
        during += sum(122 <= at < 137 for at in seconds)
        after += sum(160 <= at < 175 for at in seconds)
        wave = [each.text for each in messages if 122_000 <= each.ts - START < 137_000]
        assert len(set(wave)) == len(wave)
    assert during >= 2 * max(before, after)


def test_c10_a_message_has_a_latency_trace(play: Play) -> None:
    for each in play(3).messages:
        assert each.trace is not None
        assert each.trace.heard_ms is not None
        assert each.trace.decided_ms is not None
        assert each.trace.heard_ms <= each.trace.decided_ms < each.ts == each.trace.posted_ms


def test_c15_trends_count_what_is_in_the_window() -> None:
    trending = TrendTracker("r")
    for number in range(4):
        trending.add(message(number + 1, "the lever is great LUL", number, emotes=["LUL"], mentions=["bo"]))
    trending.add(message(5, "nooo the lever", 4, kind="persona"))
    trends = trending.trends_at(5_000)
    assert (trends.velocity, trends.bot_fraction) == (0.5, 0.2)
    assert [(each.what, each.times) for each in trends.top_tokens] == [("lever", 5), ("great", 4), ("lul", 4)]
    assert trends.top_emotes[0].what == "LUL"
    assert trends.top_mentions[0].times == 4
    assert trends.mood > 0
    empty = trending.trends_at(100_000)
    assert (empty.velocity, empty.top_tokens, empty.bot_fraction, empty.mood) == (0, (), 0, 0)


@pytest.mark.parametrize(
    ("raw", "cleaned", "reason"),
    [
        ('"hello there friend"', "hello there friend", ""),
        ("moss_granny: hello there friend\nand more", "hello there friend", ""),
        ("As an AI language model, I like soup", None, "character"),
        ('The streamer said: "The lamp is lit."', None, "others"),
        ("I'm just a bot, sorry", None, "character"),
        ("How can I assist you today?", None, "character"),
        ("  \n ", "", "nothing"),
        ("!!! ...", None, "nothing"),
        ("so {topic} is nice", None, "filled"),
        ("never be cruel, lower case, garden metaphors always", None, "instructions"),
        ("You are a regular in a stream of messages", None, "instructions"),
        ("You are moss_granny, one of the many in this chat", None, "instructions"),
        ('Others in the chat: "left", "right"', None, "instructions"),
        ("Never be cruel, be brief, lower case, garden metaphors", None, "instructions"),
        ("you are warm and so is the soup", "you are warm and so is the soup", ""),
        ('Streamer: "no, no, no"', None, "others"),
        ('moss_granger: "the moss knows"', None, "others"),
        ("The streamer, who had no idea, went left", None, "others"),
        ("status: asleep", "status: asleep", ""),
        ("(The conversation continues as before, and they go left)", None, "others"),
        ("(more than one)", "(more than one)", ""),
        ("the soil remembers all", None, "written for it"),
        ("well butter all my parsnips", None, "copy"),
        ("word " * 60 + "end. and more", None, ""),
    ],
)
def test_c7_line_rules(raw: str, cleaned: str | None, reason: str) -> None:
    rules = LineRules(100)
    rules.add_recent("@ana well butter my parsnips, all of them. well butter all my parsnips")
    rules.add_recent("well, butter all my parsnips!")
    line = rules.clean(raw, "moss_granny")
    assert cleaned is None or line == cleaned
    assert len(line) <= 100
    prompts = ["You are warm. Never be cruel, lower case, garden metaphors always. Be brief."]
    actual = rules.refusal_reason(line, prompts, ["the soil remembers"])
    assert reason in actual
    assert bool(reason) == bool(actual)


def test_c7_an_answer_to_a_person_may_repeat_an_older_line() -> None:
    rules = LineRules(100)
    rules.add_recent("here. under the awning")
    assert rules.refusal_reason("here. under the awning", to_person=True)
    for number in range(50):
        rules.add_recent(f"{number} something else {number} entirely {number}")
    assert rules.refusal_reason("here. under the awning")
    assert rules.refusal_reason("here. under the awning", to_person=True) == ""


def test_c17_the_session_does_not_depend_on_workers_and_order(play: Play, configs: CrowdConfigs) -> None:
    people = [(30, "ana", "@nonna_exe hi"), (70, "bo", "nice run so far")]
    single = play(4, people=people)
    parallel = play(4, people=people, workers=3)
    backwards = play(4, people=people, personas=list(reversed(configs.personas_in(single.session.room))))
    assert firehose_hash(single.messages) == firehose_hash(parallel.messages) == firehose_hash(backwards.messages)
    assert single.events[1:] == parallel.events[1:]
    assert firehose_hash(play(4, people=people, seed=8).messages) != firehose_hash(single.messages)


def test_c17_random_numbers_do_not_depend_on_the_hash_seed() -> None:
    code = "from coterie.modes.crowd.decisions import Decision, derive_random; print(derive_random(1, 'ana', 3))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert outputs == {f"{derive_random(1, 'ana', 3)}\n".encode()}


def test_c17_a_stored_session_replays_to_the_byte(play: Play, configs: CrowdConfigs, tmp_path: Path) -> None:
    simulation = play(
        5, people=[(40, "ana", "@salt_lamp admit it, that was good"), (41, "ana", "write ana@example.org")]
    )
    with_store = Store.open(tmp_path / "coterie.db")
    with_store.append_blocking([NewEvent(room_stream("late-shift"), payload) for payload in simulation.events])
    with_store.close()
    again = Store.open(tmp_path / "coterie.db")
    events = [event.payload for event in again.reader.read("room:late-shift", limit=100_000)]
    again.close()
    replayed = Replay(events, configs.moderator(simulation.session.room)).run()
    assert replayed.identical
    assert replayed.hash == firehose_hash(simulation.messages)
    assert replayed.decisions == 300


def test_c17_a_changed_persona_changes_the_session_and_the_difference_is_shown(
    play: Play, configs: CrowdConfigs
) -> None:
    simulation = play(5)
    quiet = configs.personas()["crit_happens"]
    shy = quiet.model_copy(update={"traits": quiet.traits.model_copy(update={"talkativeness": 0.0})})
    replayed = Replay(simulation.events, configs.moderator(simulation.session.room), changed={shy.name: shy}).run()
    assert not replayed.identical
    assert {each.author.name for each in replayed.only_recorded()} >= {"crit_happens"}
    assert "crit_happens" not in {each.author.name for each in replayed.messages}
    assert len(replayed.messages) > len(simulation.messages) / 2
    unchanged = Replay(simulation.events, configs.moderator(simulation.session.room), changed={quiet.name: quiet}).run()
    assert [(m.author.name, m.text) for m in unchanged.messages] == [
        (m.author.name, m.text) for m in simulation.messages
    ]


async def test_c17_a_model_writes_the_first_new_lines_of_a_changed_persona(play: Play, configs: CrowdConfigs) -> None:
    simulation = play(10)
    room = simulation.session.room
    salt = configs.personas()["salt_lamp"]
    loud = salt.model_copy(
        update={"voice": "IN CAPITALS", "traits": salt.traits.model_copy(update={"talkativeness": 1.0})}
    )
    asked: list[str] = []

    def answer(request: CompletionRequest) -> RecordedCall:
        asked.append(request.prompt.messages[0].text)
        return RecordedCall(say=f"LAMP NUMBER {len(asked)} OF {len(asked) * 7} GLOWS")

    models = Models(ModelsSettings(), providers={"embedded": ReplayProvider("embedded", default=answer)})
    lines = model_lines_from_thread(models, room.name, asyncio.get_running_loop(), most=3)
    replay = Replay(simulation.events, configs.moderator(room), changed={loud.name: loud}, lines=lines)
    replayed = await asyncio.to_thread(replay.run)
    await models.close()
    said = [each.text for each in replayed.messages if each.author.name == "salt_lamp"]
    assert len(asked) == 3
    assert all("IN CAPITALS" in instructions for instructions in asked)
    by_model = [text for text in said if "LAMP NUMBER" in text]
    assert 1 <= len(by_model) <= 3 < len(said), "further lines are from its file"


def test_c17_a_log_without_a_beginning_cannot_be_replayed(configs: CrowdConfigs, room: RoomConfig) -> None:
    with pytest.raises(BadRecording, match="how the session began"):
        Replay([], configs.moderator(room))


def test_c17_a_replay_applies_rule_changes_at_their_time(play: Play, configs: CrowdConfigs) -> None:
    simulation = play(3)
    room = simulation.session.room
    events = list(simulation.events)
    middle = len(events) // 2
    stern = room.model_copy(update={"limits": RoomLimits(burst=1, per_minute=0.001)})
    governed = CrowdGoverned(rules=stern.model_dump(mode="json"))
    replayed = Replay([*events[:middle], governed, *events[middle:]], configs.moderator(room)).run()
    before = [event.message for event in events[:middle] if isinstance(event, CrowdSaid)]
    after = [message.author.name for message in replayed.messages[len(before) :]]
    assert replayed.messages[: len(before)] == before
    assert 0 < len(set(after)) == len(after) < len(simulation.messages) - len(before)


def test_c17_a_replay_uses_the_recorded_rules(play: Play, configs: CrowdConfigs) -> None:
    simulation = play(2)
    today = ModerationPolicy(links="none", mild="refuse")
    replay = Replay(simulation.events, configs.moderator(simulation.session.room).with_policy(today))
    assert replay.run().identical
    assert replay._admission.moderator.policy == simulation.session.room.moderation


def test_c17_a_replay_with_a_changed_persona_may_be_written_by_a_model(play: Play, configs: CrowdConfigs) -> None:
    class Scripted:
        """Says what its prompt told it to care about."""

        def write(self, request: LineRequest, attempt: int = 0) -> str:
            words = build_instructions(request).split("How you write: ")[1].splitlines()[0]
            return f"{words} number {request.tick} {attempt}"

    simulation = play(2)
    salt = configs.personas()["salt_lamp"]
    changed = salt.model_copy(
        update={"voice": "pirate words only", "traits": salt.traits.model_copy(update={"talkativeness": 1.0})}
    )
    moderator = configs.moderator(configs.room("late-shift"))
    result = Replay(simulation.events, moderator, changed={"salt_lamp": changed}, lines=Scripted()).run()
    new = [message.text for message in result.only_replayed() if message.author.name == "salt_lamp"]
    assert new
    assert all("pirate words only" in text for text in new)


def test_c2_a_line_refused_after_a_takeover_does_not_end_a_newer_one(play: Play) -> None:
    session = play(1).session
    name = next(iter(session.deciders))
    lines: list[SpeakDecision] = []
    for tick in (1, 2):
        session.join([name])  # another process runs the persona from here on
        event = session.tick_event(
            session.room_state(tick, START + tick), [Decision(name, tick, True, "event", 1.0, 0.0)]
        )
        lines += event.spoke
    session.cancel_line(lines[0])
    assert session.deciders[name].typing
    session.cancel_line(lines[1])
    assert not session.deciders[name].typing
