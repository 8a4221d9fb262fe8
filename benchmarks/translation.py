"""From a program to its ExecutionGraph: 1,000 operators at parallelism 1,000.

Fifty pipelines of twenty operators. With chaining disabled every operator is a JobVertex: a million ExecutionVertices,
and as many IntermediateResultPartitions with their ExecutionEdges, all of them created and kept. By default, operators
are chained. Submission rejects so many subtasks; translation has to support them.
"""

from __future__ import annotations

import gc
import resource
import time
from dataclasses import dataclass

import psutil
from _report import conditions, report
from _scale import scaled

from tailrace import StreamExecutionEnvironment
from tailrace.pipelines.graph.execution_graph import ExecutionEdge, ExecutionGraph, ExecutionVertex
from tailrace.pipelines.graph.job_graph import create_job_graph

PIPELINES = scaled(50)
STEPS = 20
PARALLELISM = scaled(1_000)
MIB = 1 << 20


@dataclass
class Translation:
    """The result of a translation, and the time of each level."""

    seconds: dict[str, float]
    vertices: list[ExecutionVertex]
    edges: list[ExecutionEdge]


def program(*, chaining: bool) -> StreamExecutionEnvironment:
    """Returns pipelines of a source, fifteen maps, every fourth after a shuffle, a running sum, a filter, two sinks."""
    env = StreamExecutionEnvironment(parallelism=PARALLELISM)
    if not chaining:
        env.disable_operator_chaining()
    for _ in range(PIPELINES):
        stream = env.generate(lambda index: index, count=1, output_type=int)
        for step in range(STEPS - 5):
            keyed = stream.key_by(lambda number: number) if step % 4 == 0 else stream
            stream = keyed.map(lambda number: number + 1, output_type=int)
        counts = stream.key_by(lambda number: number % 7).sum()
        counts.print()
        counts.filter(lambda number: number > 0).print()
    return env


def translate(*, chaining: bool) -> Translation:
    """Translates through all levels."""
    marks = [time.perf_counter()]
    env = program(chaining=chaining)
    marks.append(time.perf_counter())
    stream_graph = env.get_stream_graph("translation")
    marks.append(time.perf_counter())
    job_graph = create_job_graph(stream_graph)
    marks.append(time.perf_counter())
    execution_graph = ExecutionGraph.attach("job", job_graph)
    vertices = list(execution_graph.execution_vertices())
    edges = list(execution_graph.execution_edges())
    marks.append(time.perf_counter())
    names = ("program", "stream_graph", "job_graph", "execution_graph")
    assert len(stream_graph.nodes) == PIPELINES * STEPS
    return Translation(
        {name: end - start for name, start, end in zip(names, marks, marks[1:], strict=False)},
        vertices,
        edges,
    )


def main() -> None:
    # The first programs import what the API needs.
    StreamExecutionEnvironment().generate(lambda index: index).map(str).print()
    gc.collect()
    before = psutil.Process().memory_info().rss
    cpu = time.process_time()
    translation = translate(chaining=False)
    cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    subtasks, edges, seconds = len(translation.vertices), len(translation.edges), translation.seconds
    del translation
    chained = translate(chaining=True)
    figures = {
        "seconds": sum(seconds.values()),
        "cpu_seconds": cpu,
        "mib": (peak - before) / MIB,
        **{f"{name}_s": value for name, value in seconds.items()},
        "subtasks": float(subtasks),
        "edges": float(edges),
        "chained_seconds": sum(chained.seconds.values()),
        "chained_subtasks": float(len(chained.vertices)),
    }
    notes = {
        "seconds": "program -> ExecutionGraph, nothing chained; aim: below 5",
        "cpu_seconds": "what of it the process computed",
        "mib": "peak over what the process had before",
        "program_s": "the API's calls",
        "stream_graph_s": "functions are pickled here",
        "job_graph_s": "operator ids and chains",
        "execution_graph_s": "every ExecutionVertex and ExecutionEdge made",
        "edges": "ExecutionEdges: one for each partition, with the group of its producers",
        "chained_seconds": "the same program with chaining",
    }
    under = conditions(operators=PIPELINES * STEPS, parallelism=PARALLELISM)
    report("translation", figures, under, notes)


if __name__ == "__main__":
    main()
