"""`tailrace jobmanager`, `gateway` and `history-server`: run one process in the foreground."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import (
    DEFAULT_CLUSTER,
    ClusterOptions,
    Definitions,
)
from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ...configuration import Configuration
    from ...yarn.job_file import JobFile


def jobmanager(
    job_file: Annotated[
        Path | None,
        typer.Option(
            help="Submit the job of this file (application mode). `run -t yarn-application` makes the file."
        ),
    ] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Run a jobmanager: Dispatcher, ResourceManager and the JobMasters of all jobs.

    If it is killed, start it again: it recovers its state from the log. SIGTERM stops this process, not the cluster.
    """
    configuration = cluster.locate(definitions)
    from ...configuration.options.simulation import SIMULATED

    stop = prepare(configuration)
    if configuration.get(SIMULATED):
        from ...processes import simulated_jobmanager

        simulated_jobmanager.run(configuration, stop)
    else:
        from ...processes import jobmanager as process

        process.run(configuration, stop, job=None if job_file is None else _read_job(job_file))


def gateway(
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Run a REST server: Flink's API and tailrace's own, from a replica of the log.

    It leads nothing. Any number may run, on any machine. The options that begin with `rest.` are for it.
    """
    configuration = cluster.locate(definitions)
    from ...processes.rest import RestServer
    from ..render.output import print_result

    stop = prepare(configuration)
    with RestServer(configuration) as server:
        print_result(f"the REST API is at {server.url}")
        stop.wait()


def history_server(
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="An exported log (`tailrace log export`). May be given several times.",
        ),
    ] = None,
    archive: Annotated[
        list[str] | None,
        typer.Option(
            "--archive",
            metavar="URI",
            help="A directory with archives or exported files, such as high-availability.storageDir. May be given "
            "several times.",
        ),
    ] = None,
    kafka: Annotated[
        list[str] | None,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT/CLUSTER",
            help="The log of a cluster in Kafka, with its archive. May be given several times.",
        ),
    ] = None,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
    definitions: Definitions = None,
) -> None:
    """Run a REST server for clusters that no longer run, from their logs. It only reads.

    Without --file, --archive and --kafka it serves the log of the cluster that the other options name.
    """
    from ...history.past_logs import LogFinder
    from ...processes.rest import RestServer
    from ..render.output import print_result

    if file or archive or kafka:
        configuration = cluster.configuration(definitions)
        clusters = [_kafka_cluster(configuration, place) for place in kafka or ()]
    else:
        configuration = cluster.locate(definitions)
        clusters = [configuration]
    finder = LogFinder(tuple(file or ()), tuple(archive or ()), tuple(clusters))
    stop = prepare(configuration)
    with RestServer(configuration, finder=finder) as server:
        print_result(f"the history server is at {server.url}")
        stop.wait()


def _kafka_cluster(configuration: Configuration, place: str) -> Configuration:
    """Returns the configuration of a HOST:PORT/CLUSTER. Raises BadParameter, ConfigurationError."""
    servers, slash, cluster_id = place.rpartition("/")
    if not (servers and slash and cluster_id):
        raise typer.BadParameter(f"--kafka has the form HOST:PORT/CLUSTER, not {place[:80]!r}")
    return configuration.replace({"bootstrap.servers": servers, "cluster.id": cluster_id}, "--kafka")


def _read_job(path: Path) -> JobFile:
    import msgspec

    from ...yarn.job_file import read_job_file

    try:
        return read_job_file(path)
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandFailure(ExitCode.USAGE, f"{path} is no job file: {error}") from error


def prepare(configuration: Configuration) -> Event:
    """Logs to stderr, and ends the process with any of its threads. Returns the event that SIGTERM and SIGINT set."""
    from ....infra import threads
    from ....infra.logging_setup import log_to_stderr
    from ...configuration.options.cluster import LOG_FORMAT
    from ...processes.process_lifecycle import stop_on_signals

    log_to_stderr(configuration.get(LOG_FORMAT))
    threads.handle(threads.end_process)
    return stop_on_signals()
