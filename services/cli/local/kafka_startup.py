"""Starts the embedded Kafka in parallel with the other processes."""

from __future__ import annotations

from pathlib import Path

from ....infra import threads
from ....infra.kafka import EmbeddedKafka, KafkaUnavailable

_LOOK_S = 0.01


class KafkaStartup:
    """The embedded Kafka, started on a thread, because its address is known long before it answers."""

    def __init__(self, data_dir: Path, *, detached: bool) -> None:
        self.kafka = EmbeddedKafka(data_dir)
        self._detached = detached
        self._failure: BaseException | None = None
        self._thread = threads.Thread(target=self._run, name="kafka start")
        self._thread.start()

    def address(self) -> str:
        """As soon as it is chosen. Raises what `join` raises."""
        while True:
            try:
                return self.kafka.bootstrap_servers
            except KafkaUnavailable:
                self._thread.join(_LOOK_S)
                if not self._thread.is_alive():
                    self.join()

    def join(self) -> None:
        """Waits until it answers. Raises KafkaUnavailable, JarsUnavailable, MissingPrerequisite."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def wait_settled(self) -> None:
        """Waits until it answers or has failed."""
        self._thread.join()

    def _run(self) -> None:
        try:
            self.kafka.start(detached=self._detached)
        except BaseException as error:
            self._failure = error
