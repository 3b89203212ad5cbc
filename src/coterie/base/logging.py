"""Structured logs: text on a terminal, JSON elsewhere, with secrets redacted in every field."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, TextIO

import structlog

from coterie.base.config import PageSetting, Section
from coterie.base.redaction import REDACTED, redact

_VERBOSE_LIBRARIES = ("httpx", "httpx2")
"""They log every request with its URL: several a minute for each surface that polls."""

_LineKind = tuple[str, int, str]
_MAX_LINE_KINDS = 1_000


_QUERY_SECRET = re.compile(
    r"([?&](?:[\w-]*(?:token|secret|password|passphrase|api_?key|signature)|key|code)=)[^&#\s\"']+", re.IGNORECASE
)
"""A parameter of a URL whose value gives access: links of guests, tokens of agents and platforms."""


class LogSettings(Section):
    """What is written to the terminal while the server runs."""

    level: PageSetting[Literal["debug", "info", "warning", "error"]] = "info"
    """The least severe level that is logged."""
    format: PageSetting[Literal["auto", "text", "json"]] = "auto"
    """`auto` is text on a terminal and JSON elsewhere."""


def setup_logging(settings: LogSettings | None = None, *, stream: TextIO | None = None) -> None:
    """Send our logs and those of libraries to one stream, with secrets redacted."""
    settings = settings or LogSettings()
    target = stream or sys.stderr
    as_json = not target.isatty() if settings.format == "auto" else settings.format == "json"
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _redact_fields,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=target.isatty())
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.addFilter(RepeatFilter())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
    for library in _VERBOSE_LIBRARIES:
        logging.getLogger(library).setLevel("DEBUG" if settings.level == "debug" else "WARNING")


class RepeatFilter(logging.Filter):
    """Leaves out a line that was written too often in a minute; the next line says how many were left out.

    On the handler, so that it covers the lines of libraries too: asyncio writes thousands a second when the process has
    no file descriptors left. Lines are the same if logger, level and event are.
    """

    def __init__(self, most: int = 60, window_s: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._most = most
        self._window_s = window_s
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[_LineKind, tuple[float, int]] = {}
        """When the window of a kind of line began, and how many came since."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno <= logging.DEBUG:
            return True
        kind = (record.name, record.levelno, _event_of(record))
        now = self._clock()
        with self._lock:
            began, count = self._seen.get(kind, (now, 0))
            if now - began >= self._window_s:
                if count > self._most:
                    _add_note(record, f"{count - self._most:,} more of these lines were left out")
                began, count = now, 0
                self._seen.pop(kind, None)
            self._seen[kind] = began, count + 1
            if len(self._seen) > _MAX_LINE_KINDS:
                self._seen.pop(next(iter(self._seen)))
        if count + 1 == self._most:
            _add_note(record, f"more of these lines are left out for {self._window_s:.0f} s")
        return count < self._most


def _event_of(record: logging.LogRecord) -> str:
    event = record.msg.get("event", "") if isinstance(record.msg, dict) else record.msg
    return str(event).partition("\n")[0][:200]


def _add_note(record: logging.LogRecord, note: str) -> None:
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, "note": note}
    else:
        record.msg, record.args = f"{record.getMessage()} ({note})", ()


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def _redact_fields(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in fields.items():
        if not key.startswith("_"):
            fields[key] = _redacted(value)
    return fields


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return _redact_text(value)
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, dict):
        return {_redact_text(str(key)): _redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(item) for item in value]
    return _redact_text(str(value))


def _redact_text(text: str) -> str:
    text = redact(text)
    return _QUERY_SECRET.sub(rf"\1{REDACTED}", text) if "=" in text and ("?" in text or "&" in text) else text
