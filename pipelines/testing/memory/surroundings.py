"""What the subtasks of a job in memory share: the graph, Kafka, the clock, and what a seed draws."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from ....schemas.types import JobGraph, OffsetsReset
from ...runtime.task_runtime.state_directories import StateDirectories
from .kafka import MemoryKafka
from .real_async import RealAsyncCalls
from .spark import MemorySpark
from .virtual_async import VirtualAsyncCalls

CLUSTER = "memory"


def no_pause(seconds: float) -> None:
    """Refuses a source that waits."""
    raise AssertionError(f"a source waits {seconds} s for something: it cannot run in memory")


class MemorySurroundings:
    """Of one run of a job graph."""

    is_real_time = False
    """Whether asynchronous calls take the time that they take, in another thread."""

    def __init__(
        self,
        graph: JobGraph,
        kafka: MemoryKafka,
        seed: int | None,
        *,
        job_id: str,
        scratch: str,
        topics_end: bool,
        now: int,
    ) -> None:
        """`now`: the time when it starts (ms). The other arguments are those of a MemoryCluster."""
        self.graph = graph
        self.job_id = job_id
        self.topics_end = topics_end
        self.kafka = kafka
        self.state_directories = StateDirectories(Path(scratch), 1)
        self.rng = None if seed is None else random.Random(seed)
        self.generation = 0
        self.offset_resets: tuple[OffsetsReset, ...] = ()
        """The positions of Kafka sources that were reset while the job was paused, oldest first."""
        self.pause: Callable[[float], None] = no_pause
        self.poll_limit = 1_000_000
        """The most records that a source reads at once, if there is no seed."""
        self.spark = MemorySpark(seed)
        self._now = now

    @property
    def now(self) -> int:
        """Returns the broker's clock in milliseconds."""
        return self._now

    def create_async_calls(self) -> VirtualAsyncCalls | RealAsyncCalls:
        """Creates what runs the asynchronous calls of an attempt."""
        return RealAsyncCalls() if self.is_real_time else VirtualAsyncCalls()

    def wall_clock(self) -> int:
        """Returns milliseconds; advances a little now and then."""
        if self.rng is not None and self.rng.random() < 0.2:
            self._now += self.rng.randint(0, 50)
        return self._now

    def repeats_now(self, rng: random.Random | None) -> bool:
        """Draws whether a subtask repeats its event time."""
        return self._now % 100 == 0 if rng is None else rng.random() < 0.05

    def handed_over_from(self, position: int) -> int:
        """Returns the offset at which a query starts for an attempt with that position."""
        if self.rng is None or self.rng.random() < 0.7:
            return position
        return self.rng.randint(0, position)
