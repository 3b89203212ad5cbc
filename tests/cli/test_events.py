from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from bench.lib.sample_events import SampleTurn, sample_projections
from coterie.base.paths import Paths
from coterie.eventstore import NewEvent, Store
from tests.cli.conftest import ROOT, Call


def parse_lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_newest_fifty_are_shown_oldest_first(sample_home: Paths, call: Call) -> None:
    answer = call("events", "--json")
    assert answer.code == 0
    assert [event["id"] for event in parse_lines(answer.out)] == list(range(13, 63))


def test_filters(sample_home: Paths, call: Call) -> None:
    assert [event["id"] for event in parse_lines(call("events", "--json", "--last", "3").out)] == [60, 61, 62]
    assert [event["id"] for event in parse_lines(call("events", "--json", "--after", "60").out)] == [61, 62]
    assert [event["seq"] for event in parse_lines(call("events", "--json", "--stream", "room:b").out)] == [1, 2]
    kinds = parse_lines(call("events", "--json", "--kind", "sample_felt", "--kind", "sample_time_passed").out)
    assert {event["kind"] for event in kinds} == {"sample_felt", "sample_time_passed"}
    assert call("events", "--stream", "room:none").out == ""


def test_json_contains_the_whole_event(sample_home: Paths, call: Call) -> None:
    (event,) = parse_lines(call("events", "--json", "--last", "1").out)
    assert event.pop("ts")
    assert event == {
        "id": 62,
        "stream": "room:b",
        "seq": 2,
        "kind": "sample_said",
        "version": 1,
        "payload": {"turn": "p2", "speaker": "you", "text": "the xylophone is at 2"},
        "actor": "person:you",
        "cause": None,
        "key": None,
        "turn": None,
    }


def test_control_characters_in_an_event_are_escaped(sample_home: Paths, call: Call) -> None:
    store = Store.open(sample_home.database, projections=sample_projections())
    store.append_blocking(
        [NewEvent("room:\x1b[2J", SampleTurn(turn="t", speaker="\u202e", text="\x1b]0;owned\x07\n" + "x" * 500))]
    )
    store.close()
    answer = call("events", "--last", "1")
    assert "sample_said" in answer.out
    assert len(answer.out.splitlines()) == 1
    assert not set(answer.out) & {"\x1b", "\x07", "\u202e"}
    assert len(answer.out) < 400


def test_an_unknown_kind_suggests(sample_home: Paths, call: Call) -> None:
    answer = call("events", "--kind", "sample_sad")
    assert answer.code == 11
    assert "no kind of event called sample_sad" in answer.err
    assert 'Did you mean "sample_said"?' in answer.err


@pytest.mark.parametrize("option", [["--last", "0"], ["--after", "soon"]])
def test_an_invalid_number_is_refused(sample_home: Paths, call: Call, option: list[str]) -> None:
    assert call("events", *option).code == 2


def test_without_a_database_the_error_names_the_next_step(call: Call) -> None:
    answer = call("events")
    assert answer.code == 5
    assert "There is no database" in answer.err
    assert "coterie serve" in answer.err


def test_follow_shows_new_events_and_ends_on_ctrl_c(sample_home: Paths) -> None:
    command = [sys.executable, "-u", "-m", "tests.cli.with_samples", "events", "--json", "--follow", "--last", "1"]
    follower = subprocess.Popen(
        [*command, "--kind", "sample_said"],
        cwd=ROOT,
        env={**os.environ, "COTERIE_HOME": str(sample_home.root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stderr is not None
    try:
        assert json.loads(follower.stdout.readline())["id"] == 62
        store = Store.open(sample_home.database, projections=sample_projections())
        store.append_blocking([NewEvent("room:c", SampleTurn(turn="n", speaker="you", text="news"))])
        assert json.loads(follower.stdout.readline())["payload"]["text"] == "news"
        store.close()
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 130
        assert follower.stderr.read() == ""
    finally:
        follower.kill()
        follower.wait()
        follower.stdout.close()
        follower.stderr.close()
