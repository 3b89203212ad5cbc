"""Old logs stay readable: no kind of event changes its shape under the same version."""

from __future__ import annotations

import json

from coterie.eventstore.events import EventRow, decode
from coterie.llm.usage import ClassifierFailed
from coterie.modes.desk.events import ScheduleRan
from tests.golden.event_shapes import ACCEPTED, shapes, unfit


def test_no_shape_changes_without_a_new_version() -> None:
    accepted = json.loads(ACCEPTED.read_text())
    assert unfit(accepted, shapes()) == [], "give the kind a new version and an upcaster from the old one"
    assert accepted == shapes(), "accept what was added: python -m tests.golden.event_shapes"


def test_incompatible_changes_are_reported() -> None:
    before = {"said 1": {"text": "str", "to": "str?"}, "gone 1": {}, "lifted 1": {"old": "str"}}
    assert unfit(before, {"said 1": {"text": "str", "to": "str?", "at": "int?"}, "gone 1": {}, "lifted 2": {}}) == []
    assert unfit(before, {"said 1": {"text": "int", "at": "int"}, "lifted 2": {"new": "int"}}) == [
        "said.text is not what it was",
        "said.to is not what it was",
        "said.at is new",
        "gone is gone",
    ]


def test_an_old_classifier_failure_is_still_read() -> None:
    """It had an id that belonged to nothing."""
    fields = {
        "role": "classifier",
        "schema_name": "Closing",
        "model": "m",
        "failure": "not_json",
        "raw": "",
        "attempts": 2,
    }
    old: EventRow = (
        1,
        "instance",
        1,
        "classifier_failed",
        1,
        json.dumps({**fields, "call": "c"}),
        0,
        "you",
        None,
        None,
        None,
    )
    assert decode(old).payload == ClassifierFailed.model_validate(fields)


def test_a_schedule_that_ran_in_version_1_has_its_output() -> None:
    fields = {"schedule": "s1", "due": "2026-01-01T08:00:00Z", "end": "told", "told": "Rain.", "next": None}
    old: EventRow = (1, "room", 1, "desk_schedule_ran", 1, json.dumps(fields), 0, "you", None, None, None)
    assert decode(old).payload == ScheduleRan.model_validate(
        {"schedule": "s1", "due": "2026-01-01T08:00:00Z", "end": "replied", "output": "Rain."}
    )
