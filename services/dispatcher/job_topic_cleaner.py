"""Deletes the topics of ended jobs.

A job's output can be read after its end, for `job.output.retention`. The JobMaster's shell deletes channels and
changelogs at the job's end; topics that remain a minute later are deleted here. The leader of the Dispatcher
periodically compares the topics in Kafka with the jobs in the log, so nothing has to be remembered, and the next leader
continues.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...infra import threads
from ...infra.logging_setup import logger
from ...pipelines.graph.physical_plan import job_of_topic, output_topic
from ..core.role import Clock, Time
from ..log import LogUnavailable
from ..log.topics import delete_topics
from .state import DispatcherState, Phase

_log = logger(__name__)
_LONGEST_INTERVAL_US: Final = 60_000_000
_GRACE_US: Final = 60_000_000
"""The time for the JobMaster's shell to delete the channels."""
_LIST_TIMEOUT_S: Final = 10.0


class JobTopicCleaner:
    """Deletes topics of ended jobs, in a thread, from `start` to `close`.

    `retention` is in microseconds. `state` returns the Dispatcher's state, or None if this process does not lead it or
    has not read the log to its end; then nothing is deleted.
    """

    def __init__(
        self,
        admin: AdminClient,
        cluster: str,
        retention: Time,
        state: Callable[[], DispatcherState | None],
        clock: Clock,
    ) -> None:
        self._admin = admin
        self._cluster = cluster
        self._retention = retention
        self._state = state
        self._clock = clock
        self._closed = threading.Event()
        self._thread = threads.Thread(target=self._run, name="topics of ended jobs")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stops the thread; does not wait for a request in progress."""
        self._closed.set()

    def clean_up(self) -> list[str]:
        """Deletes the expired topics and returns their names. Raises KafkaException, LogUnavailable."""
        state = self._state()
        if state is None:
            return []
        listed = self._admin.list_topics(timeout=_LIST_TIMEOUT_S).topics
        found = find_expired_topics(state, self._cluster, listed, self._clock(), self._retention)
        delete_topics(self._admin, found)
        return found

    def _run(self) -> None:
        while not self._closed.wait(min(_LONGEST_INTERVAL_US, self._retention) / 1e6):
            try:
                deleted = self.clean_up()
            except (KafkaException, LogUnavailable) as error:
                _log.warning("cannot delete the topics of ended jobs; retries", error=str(error))
            else:
                if deleted:
                    _log.info("deleted topics of ended jobs", topics=len(deleted))


def delete_job_topics(admin: AdminClient, cluster: str, job_ids: Iterable[str]) -> None:
    """Deletes all topics of these jobs. Raises KafkaException, LogUnavailable."""
    jobs = frozenset(job_ids)
    listed = admin.list_topics(timeout=_LIST_TIMEOUT_S).topics
    delete_topics(admin, sorted(topic for topic in listed if job_of_topic(cluster, topic) in jobs))


def find_expired_topics(
    state: DispatcherState, cluster: str, topics: Iterable[str], now: Time, retention: Time
) -> list[str]:
    """Returns the topics of ended jobs whose retention is over."""
    found = []
    for topic in sorted(topics):
        job = state.jobs.get(job_of_topic(cluster, topic) or "")
        if job is None or job.phase is not Phase.ENDED:
            continue
        is_output = topic == output_topic(cluster, job.job_id)
        if job.ended_at < now - (retention if is_output else _GRACE_US):
            found.append(topic)
    return found
