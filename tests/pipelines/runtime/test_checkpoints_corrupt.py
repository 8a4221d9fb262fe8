"""Files that are missing, torn or changed are found: the next older checkpoint is used, and never wrong state."""

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

from ..memory_checkpoints import Plan, Taken, storage
from ..memory_cluster import MemoryCluster
from .test_checkpoints_any_moment import program, told, undisturbed

EXAMPLES = int(os.environ.get("EXAMPLES", "10"))
NAMES = ["words", "event_time", "timers"]
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 100)), min_size=8, max_size=40)
SPOILED = st.sampled_from(
    ["deleted", "cut", "changed", "metadata deleted", "metadata cut", "metadata changed"]
)


@given(st.sampled_from(NAMES), PAIRS, SPOILED, st.integers(0, 1 << 32))
@settings(max_examples=EXAMPLES)
def test_the_next_older_checkpoint_is_used(
    name: str, pairs: list[tuple[str, int]], how: str, seed: int
) -> None:
    _, results = undisturbed(name, pairs)
    graph = program(name, pairs, 2)
    with storage(seed) as directory:
        job = MemoryCluster(graph, {}, seed, directory=directory, plan=Plan())
        job.run()
        if not job.taken or not spoil(job.taken[-1], how, random.Random(seed)):
            return
        assert not is_whole(job.taken[-1])
        for taken in reversed(job.taken):
            again = MemoryCluster(graph, {}, seed + 1, job_id="again", restored=taken)
            try:
                again.run()
            except (TaskError, CheckpointError):
                assert not is_whole(taken)
            else:
                assert told(again.given) == results
                if is_whole(taken):
                    break


def is_whole(taken: Taken) -> bool:
    """As the JobMaster finds it."""
    try:
        metadata = read_metadata(taken.completed.uri)
    except CheckpointError:
        return False
    return not verify(metadata, checksums=True)


def spoil(taken: Taken, how: str, rng: random.Random) -> bool:
    """One file of a checkpoint; False where it has none."""
    uri = taken.completed.uri
    if how.startswith("metadata"):
        store, path, offset, length = Storage.open(uri), METADATA, 0, None
    else:
        files = [each for each in files_of(taken.metadata) if each.length]
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
