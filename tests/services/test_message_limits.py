"""Events about an accepted graph fit into the log, even if the graph is at its limits; and one step of a leader
appends a few MiB at most."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from example_count import example_count
from graphs import edge, operator, vertex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tailrace.pipelines.graph import limits
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.validation import validate
from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.event import Event
from tailrace.schemas.types import (
    CheckpointOptions,
    EntryPoint,
    ExecutionState,
    JobGraph,
    JobVertex,
    ResourceProfile,
    SnapshotType,
)
from tailrace.services.core.reason_limits import LONGEST_REASON_CHARACTERS
from tailrace.services.log import Codec
from tailrace.services.log.event_log import LARGEST_EVENT
from tailrace.services.log.topics import LARGEST_SUBMISSION

from .simulated_cluster.cluster import PROFILE, Cluster, header, start_cluster
from .simulated_cluster.cluster import graph as word_count

WIDE = "\N{MATHEMATICAL BOLD CAPITAL X}"
"""A character of four bytes."""
DIRECTORY = "memory://"
SAID_OF_A_SUBTASK = 100_000
"""Bytes: more than any event says because of one subtask, at the bounds."""
SAID_OF_A_SLOT = 6_000
"""Bytes: more than all events together say because of one slot, at the bounds."""
_CODEC = Codec("c.log")
GRAPH = word_count()


def at_most(length: int) -> st.SearchStrategy[str]:
    """Draws a text of characters of up to four bytes, mostly of the maximum length."""
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
    """Draws a graph of a few vertices whose fields are as large as `validate` allows."""
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
    edges = [edge(source.vertex_id, "sink") for source in sources]
    return JobGraph(
        name=draw(NAMES.filter(lambda name: bool(name.strip()))),
        vertices=(*sources, sink),
        edges=tuple(edges),
        configuration=configuration,
        python_files=(),
    )


def sizes(cluster: Cluster) -> list[int]:
    """Returns the size in bytes of each event except those of clients. Raises if one can't be written."""
    return [
        len(_CODEC.encode(Event(record.header, record.body)))
        for record in cluster.log
        if not record.header.sender.startswith("client")
    ]


@settings(max_examples=example_count(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(graph=graphs_at_the_bounds(), end=st.sampled_from(("cancel", "suspend", "fail", "stop", "lose")))
def test_events_about_accepted_graph_fit_into_log(graph: JobGraph, end: str) -> None:
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
        cluster.send("client/c", "dispatcher", body)
    failure = "\ud800" * 5_000_000
    match end:
        case "cancel":
            cluster.send("client/c", "dispatcher", dispatcher.CancelJob(job_id="j"))
        case "suspend":
            cluster.send("client/c", "dispatcher", dispatcher.ShutDownCluster(reason=failure, suspend=True))
        case "fail":
            cluster.finish_all(ExecutionState.FAILED, failure)
        case "stop":
            cluster.send(
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


REQUESTS = st.sampled_from(
    (
        lambda text: dispatcher.SubmitJob(job_id=text, job_graph=GRAPH),
        lambda text: dispatcher.SubmitJob(job_id="new", job_graph=replace(GRAPH, name=text)),
        lambda text: dispatcher.SubmitJob(job_id="new", job_graph=GRAPH, savepoint_path=text),
        lambda text: dispatcher.SubmitJob(job_id="new", entry_point=EntryPoint(target=text, arguments=())),
        lambda text: dispatcher.SubmitJob(
            job_id="new", entry_point=EntryPoint(target="a:b", arguments=(text,), configuration={text: text})
        ),
        lambda text: dispatcher.CancelJob(job_id=text),
        lambda text: dispatcher.TriggerCheckpoint(job_id=text),
        lambda text: dispatcher.TriggerSavepoint(job_id="j", directory=text),
        lambda text: dispatcher.TriggerSavepoint(job_id=text, directory=text),
        lambda text: dispatcher.StopWithSavepoint(job_id="j", directory=f"/{text}", drain=True),
        lambda text: dispatcher.DisposeSavepoint(path=f"memory://{text}"),
        lambda text: dispatcher.ShutDownCluster(reason=text, suspend=True),
        lambda text: dispatcher.ShutDownCluster(reason=text, suspend=False),
    )
)


@settings(max_examples=example_count(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    requests=st.lists(REQUESTS, min_size=1, max_size=3),
    character=st.sampled_from(("x", "/", "\n", '"', WIDE)),
    share=st.sampled_from((1, 2, 4, 4_000)),
)
def test_events_about_any_request_fit_into_log(
    requests: list[Callable[[str], Body]], character: str, share: int
) -> None:
    text = character * ((LARGEST_SUBMISSION - 2_000) // share // len(character.encode()))
    cluster = start_cluster("te", slots=2, answers=False)
    cluster.submit("j", GRAPH)
    cluster.settle()
    for request in requests:
        submission = Event(header("client/c", "dispatcher"), request(text))
        if len(_CODEC.encode(submission)) <= LARGEST_SUBMISSION:
            cluster.send("client/c", "dispatcher", submission.body)
        cluster.settle()
    assert max(sizes(cluster)) < LARGEST_EVENT - LARGEST_EVENT // 8


def test_slot_of_many_vertices_has_bounded_profile() -> None:
    def wide(number: int) -> JobVertex:
        names = [f"{number:03}{place:02}".ljust(limits.MAX_RESOURCE_NAME_LENGTH, "r") for place in range(16)]
        own = vertex(f"v{number}", operator(f"s{number}", OperatorKind.GENERATOR))
        return replace(own, resource_profile=replace(PROFILE, extended_resources=dict.fromkeys(names, 1.0)))

    graph = replace(GRAPH, vertices=tuple(wide(number) for number in range(5)), edges=())
    (error,) = [error for error in validate(graph) if "different" in error]
    assert error == "the graph has 80 different extended resources, more than 64"
    within = replace(graph, vertices=graph.vertices[:4])
    assert not [error for error in validate(within) if "different" in error]


def test_largest_lists_of_subtasks_fit_into_log() -> None:
    attempts = tuple(f"{number:032x}" for number in range(limits.MAX_SUBTASKS))
    options = CheckpointOptions(
        snapshot_type=SnapshotType.CHECKPOINT,
        directory="x" * 20_000,
        shared="x" * 20_000,
        full=True,
        stops=True,
        drains=True,
    )
    event = job_master.CheckpointTriggered(
        job_id="x" * 64,
        checkpoint_id=2**62,
        options=options,
        to_trigger=attempts,
        to_acknowledge=attempts,
        finished=attempts,
        requests=(2**62,) * 1000,
    )
    assert len(_CODEC.encode(Event(header("job_master/j", "job_master/j"), event))) < LARGEST_EVENT // 2


@pytest.mark.parametrize("parallelism", [8, 64])
def test_events_per_slot_do_not_repeat_large_fields_of_client(parallelism: int) -> None:
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
    cluster = start_cluster("te", slots=parallelism)
    cluster.submit("j", graph)
    cluster.settle()
    cluster.send("client/c", "dispatcher", dispatcher.CancelJob(job_id="j"))
    cluster.settle()
    cluster.send("client/c", "dispatcher", dispatcher.ShutDownCluster(reason="over", suspend=False))
    cluster.settle()
    assert sum(sizes(cluster)) < parallelism * SAID_OF_A_SLOT + 100_000


def _submission(cluster: Cluster) -> Event:
    (submitted,) = cluster.events_of("SubmitJob")
    return Event(submitted.header, submitted.body)
