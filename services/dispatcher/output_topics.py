"""Deletes the output topics of jobs that ended long ago.

A job's output can be read after its end, for as long as `job.output.retention` says. The leader of the Dispatcher
compares now and then the topics that Kafka lists with what the log says of the jobs, so nothing has to be remembered: a
successor goes on where its predecessor stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ...infra import threads
from ...pipelines.graph.physical_plan import output_topic
from ..diagnostics import logger
from ..log import LogUnavailable
from ..log.topics import delete_topics
from ..roles import Clock, Time
from .state import DispatcherState, Phase

_log = logger(__name__)
_LONGEST_INTERVAL_US: Final = 60_000_000
_LIST_TIMEOUT_S: Final = 10.0


class OutputTopicCleaner:
    """Looks for such topics in a thread of its own, from `start` to `close`.

    `retention` is in microseconds. `state` gives what the Dispatcher knows; None where this process does not lead it,
    or has not read the log to its end: then nothing is deleted.
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
        self._thread = threads.Thread(target=self._run, name="output topics")

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def close(self) -> None:
        """Stops looking; does not wait for a request that is under way."""
        self._closed.set()

    def clean_up(self) -> list[str]:
        """Deletes what is due; the topics' names. Raises KafkaException, LogUnavailable."""
        state = self._state()
        if state is None:
            return []
        due = expired(state, self._cluster, self._clock() - self._retention)
        if not due:
            return []
        listed = self._admin.list_topics(timeout=_LIST_TIMEOUT_S).topics
        found = [topic for topic in due if topic in listed]
        delete_topics(self._admin, found)
        return found

    def _run(self) -> None:
        while not self._closed.wait(min(_LONGEST_INTERVAL_US, self._retention) / 1e6):
            try:
                deleted = self.clean_up()
            except (KafkaException, LogUnavailable) as error:
                _log.warning("can't delete the output topics of ended jobs; tries again", error=str(error))
            else:
                if deleted:
                    _log.info("deleted the output topics of jobs that ended long ago", topics=len(deleted))


def expired(state: DispatcherState, cluster: str, before: Time) -> list[str]:
    """The output topics of jobs that ended before a time."""
    return [
        output_topic(cluster, job.job_id)
        for job in state.jobs.values()
        if job.phase is Phase.ENDED and job.ended_at < before
    ]
