"""Somebody else writes garbage to a channel or a changelog, at any moment: it is named, and changes no result.

A job with a checkpoint goes back to it, and past what was written before; one without fails. Neither meets the same
garbage again and again.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tailrace.pipelines.runtime.common.failures import ProgressLostError

from ..memory_checkpoints import Plan, storage
from ..memory_cluster import MemoryCluster
from .test_any_interleaving import PROGRAMS
from .test_checkpoints_any_moment import program, told, undisturbed

SEEDS = int(os.environ.get("EXAMPLES", "15"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_garbage_changes_no_result(name: str) -> None:
    """Each seed is another job, other places and moments."""
    ends = Counter[str]()
    for seed in range(SEEDS):
        rng = random.Random(seed)
        pairs = [(rng.choice("abcd"), rng.randrange(100)) for _ in range(rng.randint(3, 40))]
        _, results = undisturbed(name, pairs)
        graph = program(name, pairs, rng.randint(1, 3), rng.random() < 0.5)
        with storage(seed) as directory:
            job = MemoryCluster(graph, {}, seed, directory=directory, plan=Plan(rate=0.3, savepoints=0.0))
            try:
                job.run(crashes=rng.randint(0, 2), poisons=3)
            except ProgressLostError as lost:
                assert not job.taken, f"seed {seed}"
                named = any(f"{place} holds what is no" in str(lost) for place in job.poisoned)
                others = "a buffer was lost", "holds messages, and no progress entry"
                assert named or any(each in str(lost) for each in others), f"seed {seed}: {lost}"
                ends["failed"] += 1
                continue
        assert job.generation <= len(job.poisoned), f"seed {seed}"
        assert told(job.given) == results, f"seed {seed}"
        ends["went back" if job.generation else "met none of it"] += 1
    assert ends["failed"] + ends["went back"] >= SEEDS / 10, ends
