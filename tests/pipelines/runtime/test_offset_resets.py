"""A job whose offsets are reset while it is paused: state is of all that was read, and each record counts once for each
time that the positions pass it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from example_count import example_count
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.pipelines.api import Formats, KafkaSource, StartingOffsets, StreamExecutionEnvironment
from tailrace.pipelines.graph.physical_plan import changelog_topic
from tailrace.pipelines.testing.memory.checkpoints import Plan
from tailrace.pipelines.testing.memory.cluster import BEGIN_MS, MemoryCluster, Message
from tailrace.schemas.types import JobGraph, OffsetsReset, PartitionOffset


def counting(parallelism: int) -> JobGraph:
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    source = KafkaSource("lines", Formats.text(), StartingOffsets.earliest(), bounded=True)
    words = env.from_source(source).map(lambda word: (word, 1), tuple[str, int])
    words.key_by(0).sum(1).print()
    return env.get_job_graph("counting")


def committed(cluster: MemoryCluster, partitions: int) -> dict[int, int]:
    """Returns the next offset of each partition by the progress entries of the source."""
    source = cluster.graph.vertices[0]
    topic = changelog_topic("memory", cluster.job_id, source.vertex_id)
    found = dict.fromkeys(range(partitions), 0)
    for subtask in range(source.parallelism):
        entry = cluster.kafka.tail(topic, subtask).entry
        lines = None if entry is None else entry.find_input("lines")
        found |= {} if lines is None else lines.positions
    return found


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=9), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 1 << 32),
    st.lists(
        st.tuples(
            st.integers(1, 12), st.dictionaries(st.integers(0, 3), st.integers(0, 9), min_size=1, max_size=4)
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(0, 3),
)
@settings(max_examples=example_count(25))
def test_each_record_counts_once_for_each_time_that_positions_pass_it(
    partitions: list[list[str]],
    parallelism: int,
    seed: int,
    resets: list[tuple[int, dict[int, int]]],
    crashes: int,
) -> None:
    graph = counting(parallelism)
    topic = [[Message(word.encode(), timestamp_ms=BEGIN_MS) for word in words] for words in partitions]
    operator_id = graph.vertices[0].operators[0].operator_id
    expected: Counter[str] = Counter()
    with TemporaryDirectory() as directory:
        cluster = MemoryCluster(
            graph,
            {"lines": topic},
            seed,
            directory=str(Path(directory) / "checkpoints"),
            plan=Plan(),
        )
        begun = dict.fromkeys(range(len(partitions)), 0)
        for number, (steps, reset) in enumerate(resets, 1):
            most = cluster.steps + steps
            cluster.run(crashes=crashes, until=lambda _, most=most: cluster.steps >= most)
            if cluster.has_finished_subtask:
                return
            paused = committed(cluster, len(partitions))
            for partition, words in enumerate(partitions):
                expected.update(words[begun[partition] : paused[partition]])
                low = min(reset.get(partition, paused[partition]), len(words))
                begun[partition] = low
            offsets = tuple(
                PartitionOffset(
                    operator_id=operator_id, topic="lines", partition=partition, offset=begun[partition]
                )
                for partition in reset
                if partition < len(partitions)
            )
            counter = 0 if cluster.checkpoints is None else cluster.checkpoints.counter
            reset_of = OffsetsReset(reset_id=number, checkpoint_id=counter, offsets=offsets)
            cluster.offset_resets = (*cluster.offset_resets, reset_of)
        cluster.run(crashes=crashes)
        for partition, words in enumerate(partitions):
            expected.update(words[begun[partition] :])
        greatest: Counter[str] = Counter()
        for row in cluster.given:
            word, count = row["record"]
            greatest[word] = max(greatest[word], count)
        assert greatest == expected
        assert len(cluster.given) == expected.total()
