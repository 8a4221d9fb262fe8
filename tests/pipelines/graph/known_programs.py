"""A few programs as StreamGraphs with their operator ids; run as a script, prints the ids as JSON.

`known_ids.json` beside this file has the ids for ever, on every machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

from graphs import line, node

from tailrace import Context, OutputTag, ProcessFunction, StreamExecutionEnvironment
from tailrace.pipelines.graph.job_graph import create_job_graph
from tailrace.pipelines.graph.operators import OperatorKind
from tailrace.pipelines.graph.stream_graph import ChainingStrategy, StreamEdge, StreamGraph
from tailrace.schemas.types import Partitioner

FORWARD, HASH, REBALANCE = Partitioner.FORWARD, Partitioner.HASH, Partitioner.REBALANCE


def chain() -> StreamGraph:
    """Returns three operators in one vertex."""
    return line(node(1, OperatorKind.FILES), node(2), node(3, OperatorKind.PRINT))


def word_count() -> StreamGraph:
    """Returns WindowWordCount."""
    nodes = [
        node(1, OperatorKind.SOCKET_TEXT_STREAM),
        node(2, OperatorKind.FLAT_MAP, parallelism=4, slot_sharing_group="flatMap_sg"),
        node(4, OperatorKind.WINDOW, parallelism=3, slot_sharing_group="sum_sg"),
        node(5, OperatorKind.PRINT, parallelism=3, slot_sharing_group="sum_sg"),
    ]
    edges = [(1, 2, REBALANCE), (2, 4, HASH), (4, 5, FORWARD)]
    return StreamGraph(
        "word count",
        {n.node_id: n for n in nodes},
        [StreamEdge(source_id=a, target_id=b, partitioner=p) for a, b, p in edges],
    )


def diamond() -> StreamGraph:
    """Returns a branching chain, a side output, a connected operator after both, uids, and two sources."""
    nodes = [
        node(1, OperatorKind.KAFKA_SOURCE, uid="orders"),
        node(2, OperatorKind.COLLECTION),
        node(3, OperatorKind.PROCESS),
        node(4, OperatorKind.MAP, chaining=ChainingStrategy.HEAD),
        node(5, OperatorKind.FILTER),
        node(6, OperatorKind.KEYED_CO_PROCESS, parallelism=2, uid="enrich"),
        node(7, OperatorKind.KAFKA_SINK, parallelism=2),
        node(8, OperatorKind.FILE_SINK),
        node(9, OperatorKind.FOREACH, parallelism=2),
    ]
    edges = [
        StreamEdge(source_id=1, target_id=3, partitioner=FORWARD),
        StreamEdge(source_id=2, target_id=4, partitioner=FORWARD),
        StreamEdge(source_id=3, target_id=5, partitioner=FORWARD, output_tag="late"),
        StreamEdge(source_id=3, target_id=6, partitioner=HASH, code=b"not a pickle"),
        StreamEdge(source_id=4, target_id=6, partitioner=HASH, code=b"not a pickle", input_index=1),
        StreamEdge(source_id=6, target_id=7, partitioner=FORWARD),
        StreamEdge(source_id=5, target_id=8, partitioner=FORWARD),
        StreamEdge(source_id=6, target_id=9, partitioner=FORWARD),
        StreamEdge(source_id=5, target_id=9, partitioner=REBALANCE),
    ]
    return StreamGraph("diamond", {n.node_id: n for n in nodes}, edges)


class Sort(ProcessFunction[int, int]):
    """Sends negative numbers to a side output."""

    def process_element(self, value: int, context: Context) -> Iterable[int]:
        if value < 0:
            context.output(NEGATIVE, value)
            return []
        return [value]


NEGATIVE = OutputTag("negative", int)


def written() -> StreamGraph:
    """Returns a typical program, with lambdas, sets in functions, a union, a side output and a connection."""
    env = StreamExecutionEnvironment(parallelism=2)
    sorted_numbers = env.from_collection([3, -1, 2]).process(Sort())
    numbers = env.generate(lambda index: index, count=9, output_type=int).filter(
        lambda number: number not in {3, 5, 7}
    )
    negative = sorted_numbers.get_side_output(NEGATIVE).map(abs, output_type=int).uid("negative")
    (
        sorted_numbers.union(numbers)
        .key_by(lambda number: number % 3)
        .sum()
        .connect(negative.broadcast())
        .map(str, str, output_type=str)
        .print()
    )
    return env.get_stream_graph("written")


PROGRAMS = {function.__name__: function for function in (chain, word_count, diamond, written)}


def ids() -> dict[str, dict[str, str]]:
    """Returns by program the id of each operator and edge."""
    result = {}
    for name, program in PROGRAMS.items():
        graph = create_job_graph(program())
        operators: dict[str, str] = {}
        for vertex in graph.vertices:
            for of in vertex.operators:
                operators[of.name if of.name not in operators else f"{of.name} again"] = of.operator_id
        names = {operator_id: of for of, operator_id in operators.items()}
        edges = {
            f"{names[edge.source_operator_id or '']} -> {names[edge.target_vertex_id]}": edge.data_set_id
            for edge in graph.edges
        }
        result[name] = {**operators, **edges}
    return result


if __name__ == "__main__":
    json.dump(ids(), sys.stdout, indent=2)
    print()
