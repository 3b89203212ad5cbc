"""Logs are for people and machines alike, and never hold a secret (S29)."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog

from coterie.base.logging import LogSettings, get_logger, setup_logging
from coterie.base.redaction import REDACTED, redact

SECRET = "log-hidden-77"
redact.register(SECRET)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def logs(form: Literal["text", "json", "auto"] = "json", level: Literal["debug", "info"] = "info") -> io.StringIO:
    stream = io.StringIO()
    setup_logging(LogSettings(format=form, level=level), stream=stream)
    return stream


def told(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_of_json_has_time_level_and_who() -> None:
    stream = logs()
    get_logger("coterie.some").info("happened", count=3, nothing=None, right=True)
    (line,) = told(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "happened",
        "logger": "coterie.some",
        "level": "info",
        "count": 3,
        "nothing": None,
        "right": True,
    }


def test_text_is_for_people() -> None:
    stream = logs("text")
    get_logger("coterie.some").info("happened", count=3)
    assert "happened" in stream.getvalue()
    assert "count=3" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_away_from_a_terminal_auto_means_json() -> None:
    stream = logs("auto")
    get_logger("x").warning("w")
    assert told(stream)[0]["event"] == "w"


def test_less_than_the_level_is_not_told() -> None:
    stream = logs()
    get_logger("x").debug("quiet")
    logging.getLogger("y").debug("quiet")
    assert stream.getvalue() == ""


class Thing:
    def __str__(self) -> str:
        return f"a thing with {SECRET}"


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize(
    "fields",
    [
        {"plain": SECRET},
        {"inside": f"Bearer {SECRET}, and more"},
        {"nested": {"a": [{"b": SECRET}]}},
        {"keys": {SECRET: 1}},
        {"tuple": (SECRET,), "set": {SECRET}},
        {"thing": Thing()},
        {"error": ValueError(SECRET)},
        {"raw": SECRET.encode()},
        {"hexed": SECRET.encode().hex()},
    ],
)
def test_every_field_is_masked(form: Literal["text", "json"], fields: dict[str, Any]) -> None:
    stream = logs(form)
    get_logger("x").info("told", **fields)
    assert SECRET not in stream.getvalue()
    assert SECRET.encode().hex() not in stream.getvalue()
    assert REDACTED in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_message_bound_fields_and_context_are_masked(form: Literal["text", "json"]) -> None:
    stream = logs(form)
    structlog.contextvars.bind_contextvars(context=SECRET)
    get_logger("x").bind(bound=SECRET).info(f"message {SECRET}")
    assert stream.getvalue().count(REDACTED) == 3
    assert SECRET not in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("ours", [True, False])
def test_tracebacks_are_masked(form: Literal["text", "json"], ours: bool) -> None:
    stream = logs(form)
    try:
        raise RuntimeError(f"could not log in with {SECRET}")
    except RuntimeError:
        if ours:
            get_logger("x").exception("failed")
        else:
            logging.getLogger("library").exception("failed")
    assert "RuntimeError" in stream.getvalue()
    assert REDACTED in stream.getvalue()
    assert SECRET not in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_libraries_log_goes_the_same_way(form: Literal["text", "json"]) -> None:
    stream = logs(form)
    logging.getLogger("library").warning("GET /?key=%s", SECRET, stack_info=True)
    assert REDACTED in stream.getvalue()
    assert SECRET not in stream.getvalue()
    if form == "json":
        assert told(stream)[0]["logger"] == "library"


@pytest.mark.parametrize("level", ["info", "debug"])
def test_not_every_request_of_a_library_is_told(level: Literal["info", "debug"]) -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(level=level, format="json"), stream=stream)
    for library in ("httpx", "httpx2"):
        logging.getLogger(library).info("HTTP Request: GET https://api.example.org/bot/getUpdates")
        logging.getLogger(library).warning("worth telling")
    events = [line["event"] for line in told(stream)]
    assert events.count("worth telling") == 2
    assert len(events) == (2 if level == "info" else 4)


def test_setting_up_twice_does_not_tell_twice() -> None:
    logs()
    stream = logs()
    get_logger("x").info("once")
    assert len(told(stream)) == 1
