"""What every process of a cluster has: an address, a session of its own, a log for people, an orderly end."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from types import FrameType

import structlog

from ..configuration import Configuration
from ..connections import admin
from ..log import LogUnavailable
from ..log.topics import ensure_cluster_topics

_log = structlog.get_logger(__name__)
_PAUSE_S = 1.0
KAFKA_PATIENCE_S = 120.0
"""How long a process waits for a Kafka that is gone before it ends: longer than a broker takes to come back."""


def process_address() -> str:
    """host:pid, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def session() -> str:
    """Unique to the process: how it recognises its own claims to lead."""
    return secrets.token_hex(16)


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def wait_for_topics(configuration: Configuration, stop: threading.Event) -> None:
    """Returns when Kafka is there and the cluster's topics are, or when `stop` is set (document 000)."""
    while not stop.is_set():
        try:
            ensure_cluster_topics(admin(configuration), configuration.cluster_id)
            return
        except LogUnavailable as error:
            _log.warning("keeps trying", error=str(error))
            stop.wait(_PAUSE_S)


def log_to_stderr() -> None:
    """One line an entry on stderr: time, level, what, where."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer(colors=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Looked up for each entry: what is stderr now may be closed later, as under a test.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
