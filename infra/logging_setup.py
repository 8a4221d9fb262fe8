"""The log of a process for its operators, on stderr.

A line that cannot be written is dropped: it must not stop the process. structlog is loaded with the first line, so that
commands without log lines start faster. Secrets are redacted.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

from .redaction import redacted

_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_to_stderr = False


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


def log_to_stderr() -> None:
    """Logs one line per entry to stderr: time, level, event, values."""
    global _to_stderr
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Redacting(_FORMAT))
    _to_stderr = True
    if "structlog" in sys.modules:
        _configure()


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

    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False),
            lambda _logger, _method, line: redacted(str(line)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Look up stderr for each entry: tests replace and close it.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
