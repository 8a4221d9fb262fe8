"""The common parts of every process of a cluster: an address, a session, a log for operators, an orderly shutdown."""

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
from ...infra.kafka_check import KafkaUnreachable, check_connection
from ...infra.logging_setup import logger
from ..configuration import Configuration
from ..configuration.options.tenants import TENANTS
from ..election.leader_election import LeaderElection
from ..host.host import Host
from ..log import LogUnavailable
from ..log.cluster_topics import create_cluster_topics, wait_for_first_event
from ..log.factory import create_admin_client
from ..log.topic_options import TopicOptions
from ..log.topic_watch import TopicWatch
from ..log.topics import (
    TopicRefused,
    answers_topics,
    dead_letters_topic,
    heartbeats_topic,
    log_topic,
    submissions_topics,
)

_log = logger(__name__)
_PAUSE_S = 1.0
_TOPICS_PAUSE_S = 0.2
EMIT_TIMEOUT_S = 0.5
"""How long a process that ends waits until its last events are in the log."""
ITERATION_TIMEOUT_S = 0.3
"""How long a leader that ends waits for the current iteration of its loop, which may wait for Kafka."""
END_TIMEOUT_S = 20.0
"""How long it waits for all other work."""
FAILED_END_TIMEOUT_S = 5.0
"""The maximum time to end after a thread has failed."""
KAFKA_TIMEOUT_S = 120.0
"""How long a process waits for an unreachable Kafka before it ends: longer than a broker takes to restart."""


def process_address() -> str:
    """Returns host:port of the process, for messages."""
    return f"{socket.gethostname()}:{os.getpid()}"


def new_session() -> str:
    """Returns a unique id of the process, by which it recognises its own claims."""
    return secrets.token_hex(16)


def stop_on_signals() -> threading.Event:
    """Returns an event that SIGTERM and SIGINT set."""
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return stop


def raise_thread_failure(host: Host) -> contextlib.AbstractContextManager[None]:
    """A context in which an unhandled exception of any thread ends `host.run` with ThreadFailed.

    Other threads may wait for the failed one for ever, so the process ends soon in any case.
    """

    def on_failure(name: str, error: BaseException) -> None:
        _log.exception("a thread has failed; the process ends", thread=name)
        host.fail(threads.ThreadFailed(name, error))
        threads.Timer(FAILED_END_TIMEOUT_S, threads.end_process, [name, error], name="end").start()

    return threads.use_handler(on_failure)


@contextlib.contextmanager
def exit_within(seconds: float, error: BaseException | None) -> Iterator[None]:
    """A context with a time limit for its body. After `seconds` the process exits without waiting any longer.

    `error`: the reason of the exit; None for an orderly one.
    """
    done = threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        _log.warning("the process ends without waiting for its running work", waited_s=seconds)
        if error is not None:
            _log.error("the process ends with an error", error=str(error) or repr(error))
        os._exit(0 if error is None else threads.EXIT_CODE)

    threads.Thread(target=watch, name="end").start()
    try:
        yield
    finally:
        done.set()


def hand_over_on_stop(stop: threading.Event, loop_ended: threading.Event, election: LeaderElection) -> None:
    """Starts a thread that returns the lead when `stop` is set, also if the loop of the host does not end.

    What the loop still appends is behind the next leader's claims then, and ignored. After END_TIMEOUT_S more the
    process exits without it.
    """

    def hand_over() -> None:
        stop.wait()
        if not loop_ended.wait(ITERATION_TIMEOUT_S):
            with exit_within(END_TIMEOUT_S, None):
                election.close()
                loop_ended.wait()

    threads.Thread(target=hand_over, name="hand-over").start()


def create_topic_watch(configuration: Configuration, host: Host) -> TopicWatch:
    """Returns a watch that, once started, detects the loss of the cluster's topics. Without its log the process
    ends."""
    cluster, tenants = configuration.cluster_id, configuration.get(TENANTS)
    submissions = submissions_topics(cluster, tenants).values()
    answers = answers_topics(cluster, tenants).values()
    others = [*submissions, *answers, heartbeats_topic(cluster), dead_letters_topic(cluster)]
    return TopicWatch(create_admin_client(configuration), log_topic(cluster), others, host.fail)


def wait_for_topics(
    configuration: Configuration, stop: threading.Event, *, others_create: bool = False
) -> None:
    """Waits until Kafka answers, and the cluster's topics and the first event exist, or `stop` is set.

    `others_create`: a process that may not create them waits until a jobmanager has.

    Raises TopicRefused if one is missing and this process may not create it; KafkaRefusal if Kafka does not accept it.
    """
    is_reported = False
    while not stop.is_set():
        try:
            # A broker that does not answer yet is waited for below.
            with contextlib.suppress(KafkaUnreachable):
                check_connection(configuration.kafka)
            create_cluster_topics(
                create_admin_client(configuration),
                configuration.kafka,
                configuration.cluster_id,
                options=TopicOptions.from_configuration(configuration),
            )
            wait_for_first_event(configuration.kafka, configuration.cluster_id, stop)
            return
        except TopicRefused as error:
            if not others_create:
                raise
            if not is_reported:
                is_reported = True
                _log.info("waits for a jobmanager to create the topics", reason=str(error))
            stop.wait(_TOPICS_PAUSE_S)
        except LogUnavailable as error:
            _log.warning("Kafka or the topics are not available yet; retries", error=str(error))
            stop.wait(_PAUSE_S)
