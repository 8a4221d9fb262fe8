"""`tailrace plan`: builds a program in a separate process, and prints its graphs as text, Mermaid, DOT or JSON.

This module declares the command, so that its help is quick. `diagram.py` and `formats.py` draw.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ...args.common_options import (
    Arguments,
    ClusterOptions,
    Definitions,
    Home,
    Parallelism,
    PyFiles,
    is_entry_point,
    job_options,
    misplaced_options_named,
    shipped_files,
)
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import print_result


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
) -> None:
    """Show the StreamGraph, JobGraph and ExecutionGraph of a program's first job. Needs no cluster.

    The program runs up to its first `execute`, in a separate process. All arguments after PROGRAM go to the program.
    """
    if output is PlanFormat.JSON and graph not in (Graph.ALL, Graph.STREAM):
        raise CommandFailure(
            ExitCode.USAGE, f"-o json prints the StreamGraph: leave --graph {graph.value} out"
        )
    options = job_options(ClusterOptions(home).configuration(definitions))
    from .....pipelines.graph.program import BuildRequest, build_plan

    named = is_entry_point(program)
    request = BuildRequest(
        target=program if named else None,
        file=None if named else program,
        arguments=tuple(arguments or ()),
        parallelism=parallelism,
        configuration=options,
        python_files=shipped_files(py_files or []),
    )
    with misplaced_options_named(program, arguments or []):
        stream_graph, job_graph = build_plan(request)
    from . import formats
    from .diagram import create_diagrams

    if output is PlanFormat.JSON:
        print_result(formats.to_json(stream_graph))
        return
    diagrams = create_diagrams(stream_graph, job_graph, None if graph is Graph.ALL else graph.value)
    if output is PlanFormat.MERMAID:
        print_result(formats.to_mermaid(diagrams))
    elif output is PlanFormat.DOT:
        print_result(formats.to_dot(diagrams, job_graph.name))
    else:
        formats.print_text(diagrams)
