"""What all processes of a cluster share: an address, a session id, a log for people, an orderly end."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType

from ...infra import threads
from ...infra.logging_setup import logger
from ..configuration import Configuration
from ..configuration.options.simulation import CLOCK_BEHIND, SIMULATED
from ..core.role import Clock
from ..host.host import Host, wall_clock
from ..log import LogUnavailable
from ..log.cluster_topics import create_cluster_topics
from ..log.factory import create_admin_client
from ..log.topic_watch import TopicWatch
from ..log.topics import dead_letters_topic, heartbeats_topic, log_topic, submissions_topic

_log = logger(__name__)
_PAUSE_S = 1.0
EMIT_TIMEOUT_S = 0.5
"""So long a process that ends waits for its last words to get into the log."""
END_TIMEOUT_S = 20.0
"""So long it waits for all else that it has begun."""
FAILED_END_TIMEOUT_S = 5.0
"""So long a process takes to end at most, once a thread of it has failed."""
KAFKA_TIMEOUT_S = 120.0
"""How long a process waits for a Kafka that is gone before it ends: longer than a broker takes to come back."""


def process_address() -> str:
    """host:pid, for people."""
    return f"{socket.gethostname()}:{os.getpid()}"


def new_session() -> str:
    """Unique to the process: how it recognises its own claims to lead."""
    return secrets.token_hex(16)


def create_clock(configuration: Configuration) -> Clock:
    """The wall clock; that of a simulated cluster is behind it by so much."""
    behind = configuration.get(CLOCK_BEHIND)
    return (lambda: wall_clock() - behind) if configuration.get(SIMULATED) and behind else wall_clock


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def raise_thread_failure(host: Host) -> contextlib.AbstractContextManager[None]:
    """Within it, what a thread of the process does not handle ends `host.run`, by ThreadFailed.

    Whoever waits for what that thread was to do waits for ever, so the process ends soon in any case.
    """

    def on_failure(name: str, error: BaseException) -> None:
        _log.exception("a thread has failed: the process ends", thread=name)
        host.fail(threads.ThreadFailed(name, error))
        threads.Timer(FAILED_END_TIMEOUT_S, threads.end_process, [name, error], name="end").start()

    return threads.use_handler(on_failure)


@contextlib.contextmanager
def exit_within(seconds: float, error: BaseException | None) -> Iterator[None]:
    """What is done within it may take so long. Then the process ends without it: nobody else is to wait for that.

    `error`: what the process ends by, None where it ends in order.
    """
    done = threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        _log.warning("ends without waiting for what is still being done", waited_s=seconds)
        if error is not None:
            _log.error("the process ends by an error", error=str(error) or repr(error))
        os._exit(0 if error is None else threads.EXIT_CODE)

    threads.Thread(target=watch, name="end").start()
    try:
        yield
    finally:
        done.set()


def create_topic_watch(configuration: Configuration, host: Host) -> TopicWatch:
    """Notices that the cluster's topics are lost, once it is started: without its log the process ends."""
    cluster = configuration.cluster_id
    others = [submissions_topic(cluster), heartbeats_topic(cluster), dead_letters_topic(cluster)]
    return TopicWatch(create_admin_client(configuration), log_topic(cluster), others, host.fail)


def wait_for_topics(configuration: Configuration, stop: threading.Event) -> None:
    """Returns when Kafka is there and the cluster's topics are, or when `stop` is set (document 000)."""
    while not stop.is_set():
        try:
            create_cluster_topics(
                create_admin_client(configuration), configuration.bootstrap_servers, configuration.cluster_id
            )
            return
        except LogUnavailable as error:
            _log.warning("keeps trying", error=str(error))
            stop.wait(_PAUSE_S)
