"""A foreign writer writes garbage to a channel or a changelog at any time: it is named, and changes no result.

A job with a checkpoint rolls back to it, and skips what was written before; one without a checkpoint fails. Neither
reads the same garbage twice.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pytest

from tailrace.pipelines.graph.physical_plan import temporary_topics
from tailrace.pipelines.runtime.common.failures import ProgressLostError
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import CLUSTER, MemoryCluster, Message

from ..checkpoint_storage import storage
from .test_any_interleaving import PROGRAMS
from .test_checkpoints_any_moment import printed, program, undisturbed

SEEDS = int(os.environ.get("EXAMPLES", "6"))


class _PoisonedCluster(MemoryCluster):
    """A foreign writer writes garbage to its channels and changelogs, three times at most."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.poisoned: list[str] = []

    def disturb(self, rng: random.Random) -> None:
        if len(self.poisoned) < 3 and rng.random() < 0.05:
            self._poison(rng)

    def _poison(self, rng: random.Random) -> None:
        """Writes garbage to a topic of the job: random bytes, or the beginning of one of its messages."""
        own = temporary_topics(CLUSTER, self.job_id, self.graph)
        topic = rng.choice(sorted(own))
        partition = rng.randrange(own[topic])
        garbage = rng.randbytes(rng.randrange(1, 60))
        log = self.kafka.log(topic, partition)
        if log and rng.random() < 0.5:
            copied = rng.choice(log).value
            garbage = copied[: rng.randrange(len(copied))] if len(copied) > 1 else copied
        elif rng.random() < 0.5:
            garbage = b"\x03" + garbage
        self.poisoned.append(f"{topic} [{partition}] at offset {len(log)}")
        self.kafka.append(
            topic, partition, Message(garbage, rng.choice([b"", b"no operator", rng.randbytes(4)]))
        )


@pytest.mark.parametrize("name", PROGRAMS)
def test_garbage_changes_no_result(name: str) -> None:
    """Each seed is another job with other places and times."""
    ends = Counter[str]()
    for seed in range(SEEDS):
        rng = random.Random(seed)
        pairs = [(rng.choice("abcd"), rng.randrange(100)) for _ in range(rng.randint(3, 40))]
        _, results = undisturbed(name, pairs)
        graph = program(name, pairs, rng.randint(1, 3), rng.random() < 0.5)
        with storage(seed) as directory:
            job = _PoisonedCluster(graph, {}, seed, directory=directory, plan=Plan(rate=0.3, savepoints=0.0))
            try:
                job.run(crashes=rng.randint(0, 2))
            except ProgressLostError as lost:
                assert not job.taken, f"seed {seed}"
                named = any(f"{place} is not a " in str(lost) for place in job.poisoned)
                others = "a buffer was lost", "holds messages, and no progress entry"
                assert named or any(other in str(lost) for other in others), f"seed {seed}: {lost}"
                ends["failed"] += 1
                continue
        assert job.generation <= len(job.poisoned), f"seed {seed}"
        assert printed(job.given) == results, f"seed {seed}"
        ends["went back" if job.generation else "met none of it"] += 1
    assert ends["failed"] + ends["went back"] >= SEEDS / 10, ends
