"""Properties of every operation of the API: translation is deterministic, and its graphs can be run."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from itertools import chain, pairwise
from typing import Any

import api_programs
import pytest
from api_programs import PROGRAMS
from hash_seeds import output_with_hash_seed

from tailrace.pipelines.api import StreamExecutionEnvironment
from tailrace.pipelines.graph.operators import TRAITS, OperatorKind
from tailrace.pipelines.graph.stream_graph import StreamGraph
from tailrace.pipelines.graph.validation import validate
from tailrace.pipelines.types import RecordType
from tailrace.schemas.types import JobGraph, OperatorConfig

Program = Callable[[StreamExecutionEnvironment], object]
MINI_BATCH = {"execution.mini-batch": "true"}

every_program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))


def environment(program: Program, **settings: Any) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment(**settings)
    program(env)
    return env


def operators(graph: JobGraph) -> list[OperatorConfig]:
    return [operator for vertex in graph.vertices for operator in vertex.operators]


def test_every_operator_kind_has_program() -> None:
    graphs = [environment(program, configuration=MINI_BATCH).get_job_graph() for program in PROGRAMS.values()]
    assert {operator.kind for graph in graphs for operator in operators(graph)} == set(OperatorKind)


@every_program
@pytest.mark.parametrize(
    ("parallelism", "configuration"), [(1, {}), (3, MINI_BATCH)], ids=["1", "3, mini-batch"]
)
def test_graph_is_valid(program: Program, parallelism: int, configuration: dict[str, str]) -> None:
    env = environment(program, parallelism=parallelism, configuration=configuration)
    assert validate(env.get_job_graph()) == []
    env.disable_operator_chaining()
    assert validate(env.get_job_graph()) == []


@every_program
def test_same_program_gives_same_graph(program: Program) -> None:
    first, second = (environment(program, parallelism=2) for _ in range(2))
    assert first.get_stream_graph() == second.get_stream_graph()
    assert first.get_job_graph() == first.get_job_graph() == second.get_job_graph()


@every_program
def test_operators_and_edges_have_functions_of_their_kind(program: Program) -> None:
    graph = environment(program).get_stream_graph()
    for node in graph.nodes.values():
        functions = pickle.loads(node.code) if node.code else ()
        traits = TRAITS[node.kind]
        known = {traits.functions, traits.functions + traits.optional_functions}
        assert len(functions) in known or (traits.code_is_optional and not functions)
    for edge in graph.edges:
        functions = pickle.loads(edge.code) if edge.code else ()
        assert len(functions) == {"HASH": 1, "CUSTOM": 2}.get(edge.partitioner, 0)


@every_program
def test_each_operator_has_source_location(program: Program) -> None:
    here = os.path.relpath(api_programs.__file__)
    nodes = environment(program).get_stream_graph().nodes.values()
    assert {(node.location or "").rpartition(":")[0] for node in nodes} == {here}


@every_program
def test_each_edge_has_record_type(program: Program) -> None:
    graph = environment(program, configuration=MINI_BATCH).get_stream_graph()
    for edge in graph.edges:
        parameters = json.loads(graph.nodes[edge.source_id].parameters)
        form = (
            parameters["output_type"]
            if edge.output_tag is None
            else parameters["side_outputs"][edge.output_tag]
        )
        assert RecordType.from_json(form)


@every_program
def test_edges_connect_operators_through_virtual_nodes(program: Program) -> None:
    graph = environment(program, configuration=MINI_BATCH).get_stream_graph()
    for edge in graph.edges:
        assert {edge.source_id, edge.target_id} <= set(graph.nodes)
        path = [graph.virtual_nodes[node_id] for node_id in edge.through]
        for before, after in pairwise(path):
            assert before.node_id in after.inputs
        partitions = [node.partitioner for node in path if node.partitioner is not None]
        assert partitions[-1:] in ([], [edge.partitioner])
        tags = [node.output_tag for node in path if node.output_tag is not None]
        assert tags[-1:] == ([] if edge.output_tag is None else [edge.output_tag])


@every_program
def test_rich_operators_are_marked(program: Program) -> None:
    for node in environment(program).get_stream_graph().nodes.values():
        functions = pickle.loads(node.code) if node.code else ()
        of_classes = any(
            base.__module__.startswith("tailrace.pipelines.functions")
            and base.__name__.endswith(("Function", "Source", "Sink"))
            for function in functions
            for base in type(function).__mro__
        )
        assert json.loads(node.parameters).get("rich", False) == of_classes


IDS = """
import sys
sys.path.insert(0, {tests!r})
from api_programs import PROGRAMS
from tailrace.pipelines.api import StreamExecutionEnvironment
for program in PROGRAMS.values():
    env = StreamExecutionEnvironment(parallelism=2)
    program(env)
    for vertex in env.get_job_graph().vertices:
        print(*(operator.operator_id for operator in vertex.operators))
"""


def test_operator_ids_are_the_same_in_every_process() -> None:
    program = IDS.format(tests=os.path.dirname(api_programs.__file__))
    # Of this process it is another one, unless it is set.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    printed = output_with_hash_seed(program, seed)
    graphs = [environment(program, parallelism=2).get_job_graph() for program in PROGRAMS.values()]
    here = [[o.operator_id for o in vertex.operators] for graph in graphs for vertex in graph.vertices]
    assert printed.split() == list(chain.from_iterable(here))


def stream_graph(program: Program, **settings: Any) -> StreamGraph:
    return environment(program, **settings).get_stream_graph()


@every_program
def test_mini_batches_only_add_operators_before_shuffles(program: Program) -> None:
    plain, batched = stream_graph(program), stream_graph(program, configuration=MINI_BATCH)
    added = batched.nodes.keys() - plain.nodes.keys()
    assert {batched.nodes[node_id].kind for node_id in added} <= {OperatorKind.PRE_AGGREGATE}
    sums = [node for node in plain.nodes.values() if node.kind is OperatorKind.AGGREGATE]
    assert len(added) == sum(len(plain.in_edges(node.node_id)) for node in sums)
