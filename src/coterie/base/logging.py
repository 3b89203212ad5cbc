"""Structured logs: text on a terminal, JSON elsewhere, with secrets redacted in every field."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, Literal, TextIO

import structlog

from coterie.base.config import Section
from coterie.base.redaction import redact

_VERBOSE_LIBRARIES = ("httpx", "httpx2")
"""They log every request with its URL: several a minute for each surface that polls."""


class LogSettings(Section):
    """What is written to the terminal while the server runs."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged."""
    format: Literal["auto", "text", "json"] = "auto"
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
        return redact(value)
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, dict):
        return {redact(str(key)): _redacted(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(item) for item in value]
    return redact(str(value))
