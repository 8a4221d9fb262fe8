"""A checkpoint is compatible with a job by operator id: what may change in between, and what may not."""

from __future__ import annotations

from typing import Any

import pytest
from checkpoint_files import metadata_of, pipeline
from graphs import edge, job_graph, operator, source, vertex

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.checkpoint.compatibility import (
    finished_subtasks,
    incompatibilities,
    with_key_groups_of,
)
from tailrace.pipelines.checkpoint.metadata import CheckpointMetadata
from tailrace.pipelines.checkpoint.redistribution import InFlightFilter, redistribute_state
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.schemas.types import (
    InFlightState,
    JobGraph,
    OperatorState,
    Partitioner,
    StateFile,
    SubtaskState,
)

FILE = StateFile(path="shared/f", length=1, crc=0)
KEPT = OperatorState(files=(FILE,))


def state(*operators: str, in_flight_to: str | None = None) -> SubtaskState:
    flight = () if in_flight_to is None else (channel(in_flight_to),)
    return SubtaskState(operators=dict.fromkeys(operators, KEPT), in_flight=flight)


def channel(operator_id: str, partition: int = 0, input_index: int = 0) -> InFlightState:
    return InFlightState(operator_id=operator_id, input=input_index, partition=partition, files=(FILE,))


def checkpoint_of(graph: JobGraph | None = None, **settings: Any) -> CheckpointMetadata:
    """Returns a checkpoint of a pipeline whose operators all keep state."""
    graph = graph or pipeline(2, 2)
    states = {
        (v.vertex_id, i): state(*(o.operator_id for o in v.operators))
        for v in graph.vertices
        for i in range(v.parallelism)
    }
    return metadata_of(graph, settings.pop("states", states), **settings)


@pytest.mark.parametrize("now", [pipeline(2, 2), pipeline(1, 5), pipeline(7, 1)])
def test_parallelism_may_change(now: JobGraph) -> None:
    assert incompatibilities(checkpoint_of(), now) == []


def test_operators_may_be_chained_differently_renamed_and_added() -> None:
    now = job_graph(
        vertex("source", operator("source", OperatorKind.GENERATOR), operator("new")),
        vertex("reduce", operator("reduce", OperatorKind.REDUCE, name="Counts")),
        vertex("sink", operator("sink", OperatorKind.FILE_SINK)),
        edge("source", "reduce", Partitioner.HASH),
        edge("reduce", "sink"),
    )
    assert incompatibilities(checkpoint_of(), now) == []


@pytest.mark.parametrize(
    ("before", "now", "set_now", "expected"),
    [
        (80, 100, None, 128),
        (100, 4, None, 256),
        (80, 200, None, 512),  # more subtasks than there are key groups
        (80, 100, 300, 300),
        (80, 100, 256, 256),  # what it would be as well if the program said none
    ],
)
def test_default_maximum_parallelism_is_that_of_checkpoint(
    before: int, now: int, set_now: int | None, expected: int
) -> None:
    def program(parallelism: int, max_parallelism: int | None = None) -> JobGraph:
        env = StreamExecutionEnvironment(parallelism=parallelism, max_parallelism=max_parallelism)
        env.generate(str, output_type=str).key_by(len).reduce(max).uid("longest").print()
        return env.get_job_graph("longest")

    earlier, graph = program(before), program(now, set_now)
    reduce = next(o for v in earlier.vertices for o in v.operators if o.kind == OperatorKind.REDUCE)
    where = next(v.vertex_id for v in earlier.vertices if reduce in v.operators)
    saved = checkpoint_of(earlier, states={(where, 0): state(reduce.operator_id)})
    fitted = with_key_groups_of(saved, graph)
    (keyed,) = [v for v in fitted.vertices if any(o.kind == OperatorKind.REDUCE for o in v.operators)]
    assert keyed.max_parallelism == expected
    assert bool(incompatibilities(saved, fitted)) is (set_now is not None or expected == 512)


def test_unassigned_state_is_named_by_uid() -> None:
    def program(uid: str) -> JobGraph:
        env = StreamExecutionEnvironment()
        stream = env.from_collection([1], int).uid("numbers").key_by(lambda n: n).reduce(max).uid(uid)
        stream.print()
        return env.get_job_graph("counts")

    earlier = program("counts")
    (chain,) = earlier.vertices
    reduce = next(of.operator_id for of in chain.operators if of.kind == OperatorKind.REDUCE)
    saved = checkpoint_of(earlier, states={(chain.vertex_id, 0): state(reduce)})
    (fault,) = incompatibilities(saved, program("sums"))
    assert "which the program does not have: give its operator the uid 'counts' again, or allow" in fault


def test_unassigned_state_is_rejected_by_name_unless_allowed() -> None:
    now = job_graph(source("source"), vertex("reduce", operator("reduce", OperatorKind.REDUCE)))
    (fault, other) = incompatibilities(checkpoint_of(), now)
    assert (
        "state of operator 'source' (generator, source), which the program does not have: its id was derived"
        in fault
    )
    assert "state of operator 'sink'" in other
    assert incompatibilities(checkpoint_of(), now, allow_non_restored_state=True) == []
    without = metadata_of(pipeline(2, 2), {("reduce", 0): state("reduce")})
    assert incompatibilities(without, now) == []


def test_state_of_unknown_vertex_is_rejected() -> None:
    strange = checkpoint_of(states={("reduce", 0): state("reduce", "stranger", "accumulators")})
    (fault,) = incompatibilities(strange, pipeline())
    assert "an operator stranger, which no vertex of the checkpoint has" in fault


def test_number_of_key_groups_may_not_change_with_keyed_state() -> None:
    (fault,) = incompatibilities(checkpoint_of(), pipeline(2, 2, max_parallelism=256))
    assert fault == (
        "operator 'reduce' has keyed state in 128 key groups and its maximum parallelism is now 256: set it to 128"
    )
    assert incompatibilities(metadata_of(pipeline(), {}), pipeline(max_parallelism=256)) == []


def test_operator_without_keys_rejects_keyed_state() -> None:
    now = job_graph(
        vertex("source", operator("source", OperatorKind.GENERATOR)),
        vertex(
            "reduce", operator("reduce", OperatorKind.FILE_SINK), operator("sink", OperatorKind.FILE_SINK)
        ),
        edge("source", "reduce", Partitioner.HASH),
    )
    assert incompatibilities(checkpoint_of(), now) == [
        "operator 'reduce' was a reduce and is a file_sink: its state cannot be restored; give it another uid"
    ]


def test_finished_vertex_stays_finished_at_any_parallelism() -> None:
    ended = checkpoint_of(finished=[("source", 0), ("source", 1)])
    for now in (pipeline(2, 2), pipeline(1, 3), pipeline(5, 1)):
        assert incompatibilities(ended, now) == []
        assert finished_subtasks(ended, now.vertices[0]) == frozenset(range(now.vertices[0].parallelism))
        assert finished_subtasks(ended, now.vertices[1]) == frozenset()


def test_partly_finished_vertex_must_be_unchanged() -> None:
    ended = checkpoint_of(finished=[("source", 1)])
    assert incompatibilities(ended, pipeline(2, 5)) == []
    assert finished_subtasks(ended, pipeline(2, 5).vertices[0]) == {1}
    assert incompatibilities(ended, pipeline(3, 2)) == [
        "vertex 'source' had finished in 1 of 2 subtasks: its parallelism and operators must be as they were"
    ]


def test_vertex_does_not_continue_finished_operators_of_another_vertex() -> None:
    ended = checkpoint_of(finished=[("source", 0), ("source", 1)])
    chained = vertex("source", *pipeline(1, 1).vertices[0].operators, operator("reduce", OperatorKind.REDUCE))
    (fault,) = incompatibilities(ended, job_graph(chained), allow_non_restored_state=True)
    assert "has operators of 'source', which had finished, and of 'reduce', which had not" in fault
    assert "set execution.isolation to vertex" in fault


def test_finished_vertex_gets_no_new_operator_and_no_new_sender() -> None:
    ended = checkpoint_of(finished=[("source", 0), ("source", 1), ("reduce", 0), ("reduce", 1)])
    was = pipeline(2, 2)
    grown = vertex("source", operator("source", OperatorKind.GENERATOR), operator("new"), parallelism=2)
    assert incompatibilities(ended, job_graph(grown, was.vertices[1], *was.edges)) == [
        "vertex 'source' had finished, and operator 'new' in it is new: it would get no input"
    ]
    more = job_graph(source("other"), *was.vertices, *was.edges, edge("other", "reduce", Partitioner.HASH))
    assert incompatibilities(ended, more) == [
        "vertex 'reduce' had finished, and 'other', which sends to it, had not"
    ]


def test_in_flight_records_reach_their_input() -> None:
    was = pipeline(2, 2)
    flying = metadata_of(was, {("reduce", 0): state("reduce", in_flight_to="reduce")})
    assert incompatibilities(flying, pipeline(1, 5)) == []
    faults = {
        "is another stream, or partitioned otherwise": pipeline(2, 2, partitioner=Partitioner.REBALANCE),
        "it has no input 0 any more": job_graph(*was.vertices),
    }
    for says, now in faults.items():
        (fault,) = incompatibilities(flying, now)
        assert says in fault
        assert fault.endswith("take a savepoint instead, which contains none")


def test_in_flight_records_of_chained_edge_must_be_of_same_stream() -> None:
    def flying(**changes: Any) -> CheckpointMetadata:
        sent = edge("source", "map", **{"source_operator_id": "source-operator", **changes})
        was = job_graph(source("source"), vertex("map", operator("map"), parallelism=2), sent)
        return metadata_of(was, {("map", 0): state(in_flight_to="map")})

    now = job_graph(
        vertex("source", operator("source-operator", OperatorKind.SOCKET_TEXT_STREAM), operator("map"))
    )
    assert incompatibilities(flying(), now) == []
    (channel,) = redistribute_state(flying(), now, "source", 0).in_flight
    assert (channel.operator_id, channel.partition, channel.filter) == ("map", 0, InFlightFilter.ALL)
    faults = {
        "its input 0 was another stream": {"output_tag": "late"},
        "records that are partitioned by BROADCAST": {"partitioner": Partitioner.BROADCAST},
    }
    for says, changes in faults.items():
        (fault,) = incompatibilities(flying(**changes), now)
        assert says in fault
        assert fault.endswith("take a savepoint instead, which contains none")
