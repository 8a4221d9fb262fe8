"""What a process says of its own doings to the people who run it: warnings, and what it could not do, on stderr.

A line that can't be written is lost: it is no reason to stop. structlog says it, and is loaded with the first line: a
command that has nothing to say starts without it. Secrets are left out.
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
    """A logger of structlog's, that is looked up when something is said."""

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
        """With the stack of the exception that is being handled."""
        self._say("exception", event, values)

    def _say(self, level: str, event: str, values: dict[str, Any]) -> None:
        # A full disk, or a stderr that was closed, must not end what has something to say about it.
        with contextlib.suppress(Exception):
            getattr(self._logger(), level)(event, **values)

    def _logger(self) -> Any:
        import structlog

        _configure()
        return structlog.get_logger(self._name)


def logger(name: str) -> Logger:
    """The logger of a module."""
    return Logger(name)


def log_to_stderr() -> None:
    """One line an entry on stderr: time, level, what, where."""
    global _to_stderr
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Redacting(_FORMAT))
    _to_stderr = True
    if "structlog" in sys.modules:
        _configure()


class _Redacting(logging.Formatter):
    """Leaves secrets out of the whole line and its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record))


def disable_logging() -> None:
    """What is logged from now on is lost, as where a screen would be written over."""
    global _to_stderr
    import structlog

    _to_stderr = False
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    logging.getLogger().addHandler(logging.NullHandler())


def _configure() -> None:
    """What `log_to_stderr` asked for, once."""
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
        # Looked up for each entry: what is stderr now may be closed later, as under a test.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
