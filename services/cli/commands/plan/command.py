"""`tailrace plan`: builds a program in a separate process, and draws its graphs or prints its JSON plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.common_options import (
    Arguments,
    Definitions,
    Format,
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

_NARROWEST = 40
_JOB = "job"


class Graph(StrEnum):
    """The graphs to draw."""

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
    graph: Annotated[Graph, typer.Option("--graph", help="The graphs to draw.")] = Graph.ALL,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw into an SVG file instead of the terminal.")
    ] = None,
    output: Annotated[
        Format,
        typer.Option("--output", "-o", help="Text, or the JSON plan that Flink's plan visualizer reads."),
    ] = Format.TEXT,
    py_files: PyFiles = None,
    home: Home = None,
    definitions: Definitions = None,
) -> int:
    """Show the StreamGraph, JobGraph and ExecutionGraph of a program's first job. Needs no cluster.

    The program runs up to its first `execute`, in a separate process. All arguments after PROGRAM go to the program.
    """
    if output is Format.JSON and graph not in (Graph.ALL, Graph.STREAM):
        raise CommandFailure(ExitCode.USAGE, f"-o json prints the StreamGraph: remove --graph {graph.value}")
    options = job_options(configuration(home, None, None, definitions))
    stream_graph, job_graph = _build(program, arguments or [], parallelism, options, py_files or [])
    if svg is not None:
        _write_svg(svg, _diagrams(graph, stream_graph, job_graph), job_graph.name)
    if output is Format.JSON:
        from .flink_json import json_plan

        print_result(json_plan(stream_graph))
    elif svg is None:
        _draw(_diagrams(graph, stream_graph, job_graph))
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
    return [draw() for which, draw in drawings.items() if graph in (which, Graph.ALL)]


def _draw(diagrams: Sequence[Diagram]) -> None:
    from rich.console import Console

    from .terminal import draw

    console = Console(highlight=False)
    width = max(console.width, _NARROWEST)
    for i, diagram in enumerate(diagrams):
        if i:
            console.print()
        for line in draw(diagram, width):
            console.print(line, soft_wrap=True)


def _write_svg(path: Path, diagrams: Sequence[Diagram], name: str) -> None:
    from ...render.svg_file import write_svg
    from .svg import to_svg

    write_svg(path, to_svg(diagrams, name))
