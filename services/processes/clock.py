"""The clock of a process of a cluster: it asks Kafka for the time when it starts, and from time to time."""

from __future__ import annotations

import threading
from typing import Final

from ...infra import threads
from ...infra.logging_setup import logger
from ..configuration import Configuration
from ..configuration.options.simulation import CLOCK_BEHIND, SIMULATED
from ..core.role import Time
from ..heartbeats.topic import MASTERS
from ..host.reference_clock import ReferenceClock, uptime_us
from ..log import LogUnavailable
from ..log.kafka_time import RESOLUTION_US, ask_time
from ..log.topics import heartbeats_topic

_INTERVAL_S: Final = 300.0
"""The clock of a host is wrong by 30 ms after it, if it is wrong by 100 ppm."""
_TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 1.0
_SLOW_S: Final = 0.25
_log = logger(__name__)


class ProcessClock:
    """A Clock. Until `start` it is the wall clock. In a simulated cluster it is behind by the configured time."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._behind = configuration.get(CLOCK_BEHIND) if configuration.get(SIMULATED) else 0
        self._clock = ReferenceClock()
        self._closed = threading.Event()
        self._is_warned = False
        self._thread = threads.Thread(target=self._run, name="clock")

    def __call__(self) -> Time:
        return self._clock() - self._behind

    def start(self, stop: threading.Event) -> None:
        """Returns when Kafka has said the time, or `stop` is set. Call it once, when the topics exist."""
        while not stop.is_set():
            try:
                self._ask()
                break
            except LogUnavailable as error:
                _log.warning("Kafka does not say the time; retries", error=str(error))
                stop.wait(_PAUSE_S)
        self._thread.start()

    def close(self) -> None:
        """Asks no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL_S):
            try:
                self._ask()
            except LogUnavailable as error:
                _log.debug("Kafka does not say the time", error=str(error))

    def _ask(self) -> None:
        if not _set_by_kafka(self._clock, self._configuration) and not self._is_warned:
            self._is_warned = True
            _log.warning(
                "Kafka does not say the time, so the clocks of all hosts must agree: "
                "alter the topic's message.timestamp.type to LogAppendTime",
                topic=heartbeats_topic(self._configuration.cluster_id),
            )


def read_time(configuration: Configuration) -> Time:
    """Returns the time of Kafka, or of the wall clock if Kafka does not say it. Raises LogUnavailable."""
    clock = ReferenceClock()
    _set_by_kafka(clock, configuration)
    return clock()


def _set_by_kafka(clock: ReferenceClock, configuration: Configuration) -> bool:
    topic = heartbeats_topic(configuration.cluster_id)
    found = ask_time(configuration.kafka, topic, MASTERS, uptime_us, _TIMEOUT_S)
    if found is not None:
        took_s = (found.answered - found.sent) / 1e6
        if took_s > _SLOW_S:
            _log.warning(
                "Kafka answers slowly: every decision, and every commit of a task, waits for it",
                took_s=round(took_s, 2),
            )
        clock.set_by(found.reference, found.sent, found.answered, RESOLUTION_US)
    return found is not None
