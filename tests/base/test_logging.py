"""Formats of the log, and redaction of secrets in it (S29)."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import structlog

from coterie.base.logging import LogSettings, RepeatFilter, get_logger, setup_logging
from coterie.base.redaction import REDACTED, redact

SECRET = "log-hidden-77"
redact.register(SECRET)


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
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


def logged_lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_time_level_and_logger() -> None:
    stream = logs()
    get_logger("coterie.some").info("happened", count=3, nothing=None, right=True)
    (line,) = logged_lines(stream)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "happened",
        "logger": "coterie.some",
        "level": "info",
        "count": 3,
        "nothing": None,
        "right": True,
    }


def test_the_text_format_is_readable() -> None:
    stream = logs("text")
    get_logger("coterie.some").info("happened", count=3)
    assert "happened" in stream.getvalue()
    assert "count=3" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_auto_means_json_without_a_terminal() -> None:
    stream = logs("auto")
    get_logger("x").warning("w")
    assert logged_lines(stream)[0]["event"] == "w"


def test_lower_levels_are_not_logged() -> None:
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
def test_every_field_is_redacted(form: Literal["text", "json"], fields: dict[str, Any]) -> None:
    stream = logs(form)
    get_logger("x").info("message", **fields)
    assert SECRET not in stream.getvalue()
    assert SECRET.encode().hex() not in stream.getvalue()
    assert REDACTED in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_message_bound_fields_and_context_are_redacted(form: Literal["text", "json"]) -> None:
    stream = logs(form)
    structlog.contextvars.bind_contextvars(context=SECRET)
    get_logger("x").bind(bound=SECRET).info(f"message {SECRET}")
    assert stream.getvalue().count(REDACTED) == 3
    assert SECRET not in stream.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("ours", [True, False])
def test_tracebacks_are_redacted(form: Literal["text", "json"], ours: bool) -> None:
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
def test_logs_of_libraries_are_redacted_too(form: Literal["text", "json"]) -> None:
    stream = logs(form)
    logging.getLogger("library").warning("GET /?key=%s", SECRET, stack_info=True)
    assert REDACTED in stream.getvalue()
    assert SECRET not in stream.getvalue()
    if form == "json":
        assert logged_lines(stream)[0]["logger"] == "library"


@pytest.mark.parametrize("level", ["info", "debug"])
def test_requests_of_http_libraries_are_not_logged(level: Literal["info", "debug"]) -> None:
    stream = io.StringIO()
    setup_logging(LogSettings(level=level, format="json"), stream=stream)
    for library in ("httpx", "httpx2"):
        logging.getLogger(library).info("HTTP Request: GET https://api.example.org/bot/getUpdates")
        logging.getLogger(library).warning("a warning")
    events = [line["event"] for line in logged_lines(stream)]
    assert events.count("a warning") == 2
    assert len(events) == (2 if level == "info" else 4)


def test_setting_up_twice_logs_once() -> None:
    logs()
    stream = logs()
    get_logger("x").info("once")
    assert len(logged_lines(stream)) == 1


def test_repeated_lines_are_left_out_and_counted() -> None:
    stream, now = logs(), [0.0]
    limit = RepeatFilter(most=3, window_s=60, clock=lambda: now[0])
    (handler,) = logging.getLogger().handlers
    handler.filters[:] = [limit]
    for number in range(1_000):
        get_logger("coterie.x").warning("refused", number=number)
        logging.getLogger("asyncio").error("out of files\nsocket %s", number)
    get_logger("coterie.x").warning("something else")
    ours, library, other = ([line for line in logged_lines(stream) if line["event"].startswith(start)]
                            for start in ("refused", "out of files", "something else"))  # fmt: skip
    assert [line["number"] for line in ours] == [0, 1, 2]
    assert ours[-1]["note"] == "more of these lines are left out for 60 s"
    assert len(library) == 3
    assert "left out" in library[-1]["event"]
    assert len(other) == 1
    now[0] = 61.0
    get_logger("coterie.x").warning("refused", number=1_000)
    logging.getLogger("asyncio").error("out of files\nsocket %s", 1_000)
    assert logged_lines(stream)[-2]["note"] == "997 more of these lines were left out"
    assert "997 more" in logged_lines(stream)[-1]["event"]


def test_lines_at_debug_level_are_never_left_out() -> None:
    stream = logs(level="debug")
    for _ in range(200):
        get_logger("coterie.x").debug("step")
    assert len(logged_lines(stream)) == 200


@pytest.mark.parametrize(
    "name", ["token", "access_token", "key", "api_key", "secret", "password", "code", "hub-signature"]
)
def test_a_value_in_a_url_that_gives_access_is_not_logged(name: str) -> None:
    stream = logs(level="debug")
    url = f"https://example.org/join?page=2&{name}=unregistered-77#top"
    get_logger("coterie.some").info(f"GET {url}", url=url, nested=[{"url": url}], error=ValueError(url))
    logging.getLogger("httpx").info('HTTP Request: GET %s "HTTP/1.1 200 OK"', url)
    assert len(logged_lines(stream)) == 2
    assert "unregistered-77" not in stream.getvalue()
    assert f"?page=2&{name}={REDACTED}#top" in stream.getvalue()
