"""The log of a process for its operators, on stderr: text for people, or one JSON object per line for programs.

The keys of an object are `timestamp`, `level`, `logger`, `event`, `exception`, and the values of the entry; `trace_id`
and `span_id` are those of the request that the entry is about, if it has a trace context. Secrets are redacted.

A line that cannot be written is dropped: it must not stop the process. structlog is loaded with the first line, so that
commands without log lines start faster.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, TextIO

from .open_telemetry import current_traceparent, parse_traceparent
from .redaction import redacted

FORMAT_VARIABLE: Final = "TAILRACE_LOG_FORMAT"
"""Tells the child processes of a process in which format to log."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_to_stderr = False


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"

    @classmethod
    def from_environment(cls) -> LogFormat:
        """Returns the format of the parent process; text if there is none."""
        return cls.JSON if os.environ.get(FORMAT_VARIABLE, "").lower() == cls.JSON else cls.TEXT


_format = LogFormat.TEXT


class Logger:
    """A structlog logger that is created on first use."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **values: Any) -> None:
        self._say("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        self._say("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._say("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        self._say("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Logs with the traceback of the current exception."""
        self._say("exception", event, values)

    def _say(self, level: str, event: str, values: dict[str, Any]) -> None:
        # A full disk or a closed stderr must not end the process.
        with contextlib.suppress(Exception):
            getattr(self._logger(), level)(event, **values)

    def _logger(self) -> Any:
        import structlog

        _configure()
        return structlog.get_logger(self._name)


def logger(name: str) -> Logger:
    """Returns the logger of a module."""
    return Logger(name)


def log_to_stderr(log_format: LogFormat | None = None) -> None:
    """Logs one line per entry to stderr: time, level, event, values. A format is for the child processes too; None: the
    format of the parent process."""
    global _format, _to_stderr
    if log_format is not None:
        os.environ[FORMAT_VARIABLE] = log_format
    _format = LogFormat.from_environment()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Redacting(_FORMAT) if _format is LogFormat.TEXT else JsonFormatter())
    _to_stderr = True
    if "structlog" in sys.modules:
        _configure()


class JsonFormatter(logging.Formatter):
    """Writes an entry of Python's `logging` as a JSON object. A filter may set `fields` of the entry: more values."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return _to_json(_with_trace(None, "", entry))


def _with_trace(_logger: object, _method: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Adds the ids of the present trace context, by OpenTelemetry's names."""
    context = parse_traceparent(current_traceparent())
    return entry if context is None else {**entry, **context._asdict()}


def _with_logger(logger: Any, _method: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {**entry, "logger": logger.name}


def _to_json(entry: Mapping[str, Any]) -> str:
    return redacted(json.dumps(entry, default=str, ensure_ascii=False))


class _Redacting(logging.Formatter):
    """Redacts secrets in the whole line and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def disable_logging() -> None:
    """Drops all later log lines, for example because they would overwrite a full-screen display."""
    global _to_stderr
    import structlog

    _to_stderr = False
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    logging.getLogger().addHandler(logging.NullHandler())


def _configure() -> None:
    """Applies `log_to_stderr` once."""
    global _to_stderr
    if not _to_stderr:
        return
    _to_stderr = False
    import structlog

    render = (
        (structlog.dev.ConsoleRenderer(colors=False), lambda _logger, _method, line: redacted(str(line)))
        if _format is LogFormat.TEXT
        else (_with_logger, _with_trace, lambda _logger, _method, entry: _to_json(entry))
    )

    class NamedLogger(structlog.PrintLogger):
        def __init__(self, name: str, file: TextIO) -> None:
            super().__init__(file)
            self.name = name

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Look up stderr for each entry: tests replace and close it.
        logger_factory=lambda name="", *_: NamedLogger(name, sys.stderr),
    )
