"""`tailrace plan`: builds a program in a separate process, and prints its graphs as text, Mermaid, DOT or JSON.

This module declares the command, so that its help is quick. `diagram.py` and `formats.py` draw.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ...args.common_options import (
    Archives,
    Arguments,
    ClusterOptions,
    Definitions,
    Home,
    Parallelism,
    PyFiles,
    Requirements,
    is_entry_point,
    job_options,
    misplaced_options_named,
    shipped_files,
)
from ...exit_codes import CommandFailure, ExitCode
from ...render.output import print_json, print_result

if TYPE_CHECKING:
    from .....schemas.types import JobGraph
    from ....configuration import Configuration


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
    topics: Annotated[
        str | None,
        typer.Option(
            metavar="JOB_ID",
            help="Print the topics that the job needs if it is submitted with this id, as kafka-topics.sh commands or "
            "as JSON.",
        ),
    ] = None,
    py_files: PyFiles = None,
    requirements: Requirements = None,
    archives: Archives = None,
    home: Home = None,
    definitions: Definitions = None,
) -> None:
    """Show the StreamGraph, JobGraph and ExecutionGraph of a program's first job. Needs no cluster.

    The program runs up to its first `execute`, in a separate process. All arguments after PROGRAM go to the program.
    """
    if topics is not None:
        _check_topics_options(topics, graph, output)
    if output is PlanFormat.JSON and graph not in (Graph.ALL, Graph.STREAM):
        raise CommandFailure(
            ExitCode.USAGE, f"-o json prints the StreamGraph: leave --graph {graph.value} out"
        )
    configuration = ClusterOptions(home).configuration(definitions)
    options = job_options(configuration)
    from .....pipelines.graph.program import BuildRequest, build_plan

    named = is_entry_point(program)
    request = BuildRequest(
        target=program if named else None,
        file=None if named else program,
        arguments=tuple(arguments or ()),
        parallelism=parallelism,
        configuration=options,
        python_files=shipped_files(py_files, requirements, archives),
    )
    with misplaced_options_named(program, arguments or []):
        stream_graph, job_graph = build_plan(request)
    if topics is not None:
        _print_topics(configuration, topics, job_graph, output)
        return
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


def _check_topics_options(job_id: str, graph: Graph, output: PlanFormat) -> None:
    from .....schemas.ids import is_id

    if graph is not Graph.ALL or output not in (PlanFormat.TEXT, PlanFormat.JSON):
        raise CommandFailure(
            ExitCode.USAGE,
            "--topics prints commands, or JSON with -o json: leave other formats and --graph out",
        )
    if not is_id(job_id):
        raise CommandFailure(
            ExitCode.USAGE, f"--topics {job_id!r}: a job's id has 1 to 64 letters, digits, '-' or '_'"
        )


def _print_topics(configuration: Configuration, job_id: str, graph: JobGraph, output: PlanFormat) -> None:
    from ....configuration.options.cluster import OUTPUT_RETENTION
    from ....job_master.job_topics import new_job_topics
    from ....log.topic_options import TopicOptions
    from ....log.topics import creation_command
    from ...render.acls import KafkaTool

    cluster = configuration.cluster_id
    wanted = new_job_topics(
        cluster,
        job_id,
        graph,
        TopicOptions.from_configuration(configuration),
        configuration.get(OUTPUT_RETENTION),
    )
    if output is PlanFormat.TEXT:
        tool = KafkaTool("kafka-topics.sh", configuration.bootstrap_servers).prefix()
        for topic in wanted:
            print_result(creation_command(topic, tool))
        return
    listed = [
        {
            "topic": topic.topic,
            "partitions": topic.num_partitions,
            # None: the broker's default.
            "replication_factor": topic.replication_factor if topic.replication_factor > 0 else None,
            "config": topic.config,
        }
        for topic in wanted
    ]
    print_json({"cluster_id": cluster, "job_id": job_id, "topics": listed})
