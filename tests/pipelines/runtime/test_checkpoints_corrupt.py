"""Missing, truncated or changed files are detected: the next older checkpoint is used, and never wrong state."""

from __future__ import annotations

import os
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.infra.storage.errors import CheckpointError
from tailrace.infra.storage.storage import Storage
from tailrace.pipelines.checkpoint.layout import METADATA, base_of
from tailrace.pipelines.checkpoint.metadata import files_of, read_metadata, verify
from tailrace.pipelines.runtime.common.failures import TaskError
from tailrace.pipelines.testing.memory.checkpoints import MemoryCheckpoint, Plan
from tailrace.pipelines.testing.memory.cluster import MemoryCluster

from ..checkpoint_storage import storage
from .test_checkpoints_any_moment import printed, program, undisturbed

EXAMPLES = int(os.environ.get("EXAMPLES", "5"))
NAMES = ["words", "event_time", "timers"]
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 100)), min_size=8, max_size=40)
SPOILED = st.sampled_from(
    ["deleted", "cut", "changed", "metadata deleted", "metadata cut", "metadata changed"]
)


@given(st.sampled_from(NAMES), PAIRS, SPOILED, st.integers(0, 1 << 32))
@settings(max_examples=EXAMPLES)
def test_next_older_checkpoint_is_used(name: str, pairs: list[tuple[str, int]], how: str, seed: int) -> None:
    _, results = undisturbed(name, pairs)
    graph = program(name, pairs, 2)
    with storage(seed) as directory:
        job = MemoryCluster(graph, {}, seed, directory=directory, plan=Plan())
        job.run()
        if not job.taken or not spoil(job.taken[-1], how, random.Random(seed)):
            return
        assert not is_whole(job.taken[-1])
        for checkpoint in reversed(job.taken):
            again = MemoryCluster(graph, {}, seed + 1, job_id="again", restored=checkpoint)
            try:
                again.run()
            except (TaskError, CheckpointError):
                assert not is_whole(checkpoint)
            else:
                assert printed(again.given) == results
                if is_whole(checkpoint):
                    break


def is_whole(taken: MemoryCheckpoint) -> bool:
    """Returns whether the JobMaster finds the checkpoint intact."""
    try:
        metadata = read_metadata(taken.completed.uri)
    except CheckpointError:
        return False
    return not verify(metadata, checksums=True)


def spoil(taken: MemoryCheckpoint, how: str, rng: random.Random) -> bool:
    """Damages one file of a checkpoint; returns False if it has none."""
    uri = taken.completed.uri
    if how.startswith("metadata"):
        store, path, offset, length = Storage.open(uri), METADATA, 0, None
    else:
        files = [file for file in files_of(taken.metadata) if file.length]
        if not files:
            return False
        file = rng.choice(files)
        store, path, offset, length = Storage.open(base_of(uri)), file.path, file.offset, file.length
    data = store.read(path)
    stretch = len(data) - offset if length is None else length
    at = offset + rng.randrange(stretch)
    if how.endswith("deleted"):
        store.delete(path)
    elif how.endswith("cut"):
        store.write_atomically(path, data[:at])
    else:
        store.write_atomically(path, data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
    return True
