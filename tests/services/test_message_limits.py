"""Whatever is said of a graph that is accepted fits into the log, also of one at the bounds; and one turn of a leader
says no more than a few MiB."""

from __future__ import annotations

import pytest
from graphs import edge, operator, vertex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph import limits
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.event import Event
from tailrace.schemas.types import CheckpointOptions, ExecutionState, JobGraph, ResourceProfile, SnapshotType
from tailrace.services.core.reason_limits import LONGEST_REASON_CHARACTERS
from tailrace.services.log import Codec
from tailrace.services.log.event_log import LARGEST_EVENT

from .simulated_cluster.cluster import Cluster, header

WIDE = "\N{MATHEMATICAL BOLD CAPITAL X}"
"""A character of four bytes."""
DIRECTORY = "memory://"
SAID_OF_A_SUBTASK = 100_000
"""Bytes: more than any event says because of one subtask, at the bounds."""
SAID_OF_A_SLOT = 10_000
"""Bytes: more than all events together say because of one slot, at the bounds."""
_CODEC = Codec("c.log")


def at_most(length: int) -> st.SearchStrategy[str]:
    """A text of characters of up to four bytes, most often as long as it may be."""
    lengths = st.sampled_from((1, length // 2, length, length, length))
    return st.builds(
        lambda character, size: character * size, st.sampled_from(("x", "\n", '"', WIDE)), lengths
    )


NAMES = at_most(limits.MAX_NAME_LENGTH)
AMOUNTS = st.sampled_from((0, 0, 1, limits.MAX_RESOURCE_AMOUNT))
PROFILES = st.none() | st.builds(
    lambda amounts, names, zero: ResourceProfile(
        cpu_cores=float(amounts[0]),
        heap_memory_mb=amounts[1],
        direct_memory_mb=amounts[2],
        native_memory_mb=amounts[3],
        network_memory_mb=amounts[4],
        managed_memory_mb=amounts[5],
        extended_resources={
            f"{number}{names}"[: limits.MAX_RESOURCE_NAME_LENGTH]: float(not zero)
            for number in range(limits.MAX_RESOURCES)
        },
    ),
    st.tuples(*[AMOUNTS] * 6),
    NAMES,
    st.booleans(),
)


@st.composite
def graphs_at_the_bounds(draw: st.DrawFn) -> JobGraph:
    """A graph of a few vertices whose fields are as large as `validate` lets them be."""
    parallelism = draw(st.integers(1, 4))
    shared = draw(NAMES.filter(lambda name: "/" not in name))
    sources = [
        replace(
            vertex(
                f"source{number}",
                replace(
                    operator(f"source{number}", OperatorKind.GENERATOR),
                    name=draw(NAMES),
                    uid=draw(st.none() | NAMES),
                    location=draw(st.none() | at_most(limits.MAX_LOCATION_LENGTH)),
                ),
            ),
            name=draw(NAMES),
            parallelism=parallelism,
            slot_sharing_group=draw(st.sampled_from(("", shared))),
            resource_profile=draw(PROFILES),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    sink = vertex("sink", operator("sink", OperatorKind.PRINT))
    configuration = {
        "execution.checkpointing.interval": draw(st.sampled_from(("10 ms", "36500 d"))),
        "execution.checkpointing.timeout": draw(st.sampled_from(("1 ms", "36500 d"))),
        "execution.checkpointing.tolerable-failed-checkpoints": draw(st.sampled_from(("0", "unlimited"))),
        "restart-strategy.fixed-delay.delay": "36500 d",
        "restart-strategy.type": draw(st.sampled_from(("none", "fixed-delay", "exponential-delay"))),
        "state.savepoints.dir": f"{DIRECTORY}{WIDE * 3_900}",
        "state.checkpoints.dir": f"{DIRECTORY}{'x' * 3_900}",
    }
    edges = [edge(each.vertex_id, "sink") for each in sources]
    return JobGraph(
        name=draw(NAMES.filter(lambda name: bool(name.strip()))),
        vertices=(*sources, sink),
        edges=tuple(edges),
        configuration=configuration,
        python_files=(),
    )


def sizes(cluster: Cluster) -> list[int]:
    """Bytes of each event that was said, but for what clients did; raises where one can't be written."""
    return [
        len(_CODEC.encode(Event(each.header, each.body)))
        for each in cluster.log
        if not each.header.sender.startswith("client")
    ]


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs_at_the_bounds(), end=st.sampled_from(("cancel", "suspend", "fail", "stop", "lose")))
def test_whatever_is_said_of_an_accepted_graph_fits(graph: JobGraph, end: str) -> None:
    assert validate(graph) == []
    cluster = Cluster(answers=False)
    cluster.start_master()
    for number in range(3):
        cluster.start_task_executor(f"te-{number}", 8)
    cluster.settle()
    cluster.submit("j", graph)
    cluster.settle()
    for seconds in (0.1, 1):
        cluster.now += int(seconds * 1e6)
        for _ in range(20):
            cluster.step()
    for body in (
        dispatcher.TriggerSavepoint(job_id="j", directory=f"{DIRECTORY}{WIDE * 2_000}"),
        dispatcher.TriggerCheckpoint(job_id="j"),
        dispatcher.TriggerSavepoint(job_id="j", directory="x" * 100_000),
    ):
        cluster.say("client/c", "dispatcher", body)
    failure = "\ud800" * 5_000_000
    match end:
        case "cancel":
            cluster.say("client/c", "dispatcher", dispatcher.CancelJob(job_id="j"))
        case "suspend":
            cluster.say("client/c", "dispatcher", dispatcher.ShutDownCluster(reason=failure, suspend=True))
        case "fail":
            cluster.finish_all(ExecutionState.FAILED, failure)
        case "stop":
            cluster.say(
                "client/c", "dispatcher", dispatcher.StopWithSavepoint(job_id="j", directory=None, drain=True)
            )
        case _:
            cluster.lose("te-0", failure)
    for _ in range(200):
        cluster.step()
    assert (
        max(sizes(cluster))
        < len(_CODEC.encode(_submission(cluster))) + 2 * 4 * LONGEST_REASON_CHARACTERS + SAID_OF_A_SUBTASK
    )


def test_the_largest_lists_of_subtasks_fit() -> None:
    attempts = tuple(f"{number:032x}" for number in range(limits.MAX_SUBTASKS))
    options = CheckpointOptions(
        snapshot_type=SnapshotType.CHECKPOINT,
        directory="x" * 20_000,
        shared="x" * 20_000,
        full=True,
        stops=True,
        drains=True,
    )
    said = job_master.CheckpointTriggered(
        job_id="x" * 64,
        checkpoint_id=2**62,
        options=options,
        to_trigger=attempts,
        to_acknowledge=attempts,
        finished=attempts,
        requests=(2**62,) * 1000,
    )
    assert len(_CODEC.encode(Event(header("job_master/j", "job_master/j"), said))) < LARGEST_EVENT // 2


@pytest.mark.parametrize("parallelism", [8, 64])
def test_what_is_said_for_each_slot_does_not_repeat_what_a_client_made_large(parallelism: int) -> None:
    name, resource = "n" * limits.MAX_NAME_LENGTH, "r" * (limits.MAX_RESOURCE_NAME_LENGTH - 2)
    profile = ResourceProfile(
        cpu_cores=0.0,
        heap_memory_mb=0,
        direct_memory_mb=0,
        native_memory_mb=0,
        network_memory_mb=0,
        managed_memory_mb=0,
        extended_resources={f"{resource}{number:02}": 0.0 for number in range(limits.MAX_RESOURCES)},
    )
    wide = replace(
        vertex("v", operator("s", OperatorKind.GENERATOR), operator("p", OperatorKind.PRINT, upstream="s")),
        parallelism=parallelism,
        resource_profile=profile,
    )
    graph = JobGraph(name=name, vertices=(wide,), edges=(), configuration={}, python_files=())
    assert validate(graph) == []
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te", parallelism)
    cluster.settle()
    cluster.submit("j", graph)
    cluster.settle()
    cluster.say("client/c", "dispatcher", dispatcher.CancelJob(job_id="j"))
    cluster.settle()
    cluster.say("client/c", "dispatcher", dispatcher.ShutDownCluster(reason="over", suspend=False))
    cluster.settle()
    assert sum(sizes(cluster)) < parallelism * SAID_OF_A_SLOT + 100_000


def _submission(cluster: Cluster) -> Event:
    (submitted,) = cluster.said("SubmitJob")
    return Event(submitted.header, submitted.body)
