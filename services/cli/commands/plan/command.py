"""`tailrace plan`: builds a program in a separate process, and prints its graphs as text, Mermaid, DOT or JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.common_options import (
    Arguments,
    Definitions,
    Home,
    Parallelism,
    PyFiles,
    configuration,
    job_options,
    misplaced_options_named,
    shipped_files,
)
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import print_result

if TYPE_CHECKING:
    from .....pipelines.graph.stream_graph import StreamGraph
    from .....schemas.types import JobGraph
    from .diagram import Diagram

_MIN_WIDTH = 40
_JOB = "job"


class PlanFormat(StrEnum):
    """How graphs are printed."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"


class Graph(StrEnum):
    """Which graphs are printed."""

    STREAM = "stream"
    JOB = "job"
    EXECUTION = "execution"
    ALL = "all"


def plan(
    program: Annotated[
        str, typer.Argument(metavar="PROGRAM", help="PROGRAM.py or module:function, as for `tailrace run`.")
    ],
    arguments: Arguments = None,
    parallelism: Parallelism = None,
    graph: Annotated[Graph, typer.Option("--graph", help="Which graphs.")] = Graph.ALL,
    output: Annotated[
        PlanFormat,
        typer.Option(
            "--output",
            "-o",
            help="Text for people, a Mermaid flowchart, Graphviz's DOT, or the JSON plan of Flink's plan visualizer.",
        ),
    ] = PlanFormat.TEXT,
    py_files: PyFiles = None,
    home: Home = None,
    definitions: Definitions = None,
) -> int:
    """Show the StreamGraph, JobGraph and ExecutionGraph of a program's first job. Needs no cluster.

    The program runs up to its first `execute`, in a separate process. All arguments after PROGRAM go to the program.
    """
    if output is PlanFormat.JSON and graph not in (Graph.ALL, Graph.STREAM):
        raise CommandFailure(
            ExitCode.USAGE, f"-o json prints the StreamGraph: leave --graph {graph.value} out"
        )
    options = job_options(configuration(home, None, None, definitions))
    stream_graph, job_graph = _build(program, arguments or [], parallelism, options, py_files or [])
    match output:
        case PlanFormat.JSON:
            from .flink_json import json_plan

            print_result(json_plan(stream_graph))
        case PlanFormat.MERMAID:
            from .mermaid import to_mermaid

            print_result(to_mermaid(_diagrams(graph, stream_graph, job_graph)))
        case PlanFormat.DOT:
            from .dot import to_dot

            print_result(to_dot(_diagrams(graph, stream_graph, job_graph), job_graph.name))
        case PlanFormat.TEXT:
            _print_text(_diagrams(graph, stream_graph, job_graph))
    return ExitCode.OK


def _build(
    program: str,
    arguments: Sequence[str],
    parallelism: int | None,
    options: dict[str, str],
    py_files: Sequence[str],
) -> tuple[StreamGraph, JobGraph]:
    from .....pipelines.graph.program import BuildRequest, build_plan

    named = ":" in program and not Path(program).exists()
    request = BuildRequest(
        target=program if named else None,
        file=None if named else program,
        arguments=tuple(arguments),
        parallelism=parallelism,
        configuration=options,
        python_files=shipped_files(py_files),
    )
    with misplaced_options_named(program, arguments):
        return build_plan(request)


def _diagrams(graph: Graph, stream_graph: StreamGraph, job_graph: JobGraph) -> list[Diagram]:
    from .....pipelines.graph.execution_graph import ExecutionGraph
    from .diagram import execution_diagram, job_diagram, stream_diagram

    drawings: dict[Graph, Callable[[], Diagram]] = {
        Graph.STREAM: lambda: stream_diagram(stream_graph),
        Graph.JOB: lambda: job_diagram(stream_graph, job_graph),
        Graph.EXECUTION: lambda: execution_diagram(ExecutionGraph.attach(_JOB, job_graph)),
    }
    return [create() for which, create in drawings.items() if graph in (which, Graph.ALL)]


def _print_text(diagrams: Sequence[Diagram]) -> None:
    from rich.console import Console

    from .text import to_text

    console = Console(highlight=False)
    width = max(console.width, _MIN_WIDTH)
    for i, diagram in enumerate(diagrams):
        if i:
            console.print()
        for line in to_text(diagram, width):
            console.print(line, soft_wrap=True)
