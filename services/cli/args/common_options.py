"""Options that many commands share, and how a command finds its cluster.

In this order: the command line, the environment (`TAILRACE_...`), `<home>/tailrace.yaml`, and, of where the cluster is,
`<home>/cluster.json`, which `cluster start` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ....schemas.types import PythonFile
    from ...configuration import Configuration

Home = Annotated[
    Path | None,
    typer.Option(
        help="Where a cluster on this machine keeps its data, logs and cluster.json. \\[default: .tailrace]",
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        help="Kafka, host:port,... \\[default: the cluster of --home]",
    ),
]
ClusterId = Annotated[
    str | None,
    typer.Option(
        help="Which cluster on that Kafka. \\[default: the cluster of --home, else 'tailrace']",
    ),
]
Definitions = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        metavar="KEY=VALUE",
        help="Set an option of docs/configuration.md, which `tailrace config` lists; may be given several times.",
    ),
]

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ARGS]...",
        help="For the program: everything behind its path. Options of tailrace go before it.",
    ),
]
Parallelism = Annotated[
    int | None,
    typer.Option("--parallelism", "-p", min=1, help="Of operators that set none. \\[default: the program's]"),
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--py-file",
        metavar="PATH",
        help="Ship a module, a package's directory, a zip file or a data file: the program and its jobs' functions "
        "are imported from there first. May be given several times.",
    ),
]


class Format(StrEnum):
    """What a command prints on stdout."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="For people, or JSON for machines.")]


def configuration(
    home: Path | None,
    bootstrap_servers: str | None,
    cluster_id: str | None,
    definitions: Sequence[str] | None = None,
    more: Mapping[str, tuple[str, object]] | None = None,
) -> Configuration:
    """The command line over the environment over the home's file over the defaults.

    `definitions` are those of -D; `more` has the values of other options of the command, by the name of the option:
    its key and value, None where it was not given. Raises ConfigurationError for what is impossible.
    """
    from ...configuration import Setting, load_configuration

    given: dict[str, tuple[str, object]] = {
        "--home": ("home", home),
        "--bootstrap-servers": ("bootstrap.servers", bootstrap_servers),
        "--cluster-id": ("cluster.id", cluster_id),
        **(more or {}),
    }
    settings = [Setting(key, str(value), name) for name, (key, value) in given.items() if value is not None]
    return load_configuration(settings, definitions or ())


_RUN_OPTIONS = frozenset(
    [
        "-p",
        "--parallelism",
        "-d",
        "--detached",
        "-D",
        "-s",
        "--from-savepoint",
        "--allow-non-restored-state",
        "--py-file",
        "--job-id",
        "-o",
        "--output",
        "--home",
        "--bootstrap-servers",
        "--cluster-id",
        "--graph",
        "--svg",
    ]
)


@contextmanager
def misplaced_options_named(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """Where a program refuses its arguments, names the option of tailrace that is among them. Raises ProgramError."""
    from ....pipelines.graph.errors import ProgramError

    try:
        yield
    except ProgramError as error:
        taken = next((each for each in arguments if each.partition("=")[0] in _RUN_OPTIONS), None)
        if taken is None or " exited with status " not in error.reason:
            raise
        raise ProgramError(
            f"{error.reason}; {taken} is given behind {program} and goes to the program: options of tailrace go "
            "before the program",
            location=error.location,
        ) from error


def job_options(found: Configuration) -> dict[str, str]:
    """What -D says of the job. Raises Failure for what it says of anything else but where the cluster is."""
    from ....infra.config.options import Scope
    from ...configuration.sources import DEFINITION

    options: dict[str, str] = {}
    for setting in found.settings():
        scopes = found.option(setting.key).scopes
        if setting.origin != DEFINITION or Scope.CLIENT in scopes:
            continue
        if Scope.JOB not in scopes:
            raise CommandFailure(
                ExitCode.USAGE,
                f"-D {setting.key} is an option of {' and '.join(scopes)}, not of a job: give it to "
                "`tailrace cluster start`",
            )
        options[setting.key] = setting.text
    return options


def shipped_files(paths: Sequence[str]) -> tuple[PythonFile, ...]:
    """The files that are to be shipped. Raises ProgramError for what can't be."""
    from ....pipelines.graph.python_files import check, collect_files, merge_files

    files: tuple[PythonFile, ...] = ()
    for path in paths:
        files = merge_files(files, collect_files(path))
    check(files)
    return files


def find_cluster(
    home: Path | None,
    bootstrap_servers: str | None,
    cluster_id: str | None,
    definitions: Sequence[str] | None = None,
    more: Mapping[str, tuple[str, object]] | None = None,
) -> Configuration:
    """The configuration of a cluster that exists, with Kafka's address. Raises Failure where none is known."""
    return resolve_location(configuration(home, bootstrap_servers, cluster_id, definitions, more))


def resolve_location(found: Configuration) -> Configuration:
    """The same with the addresses of Kafka and ZooKeeper, from cluster.json if need be, and with what the start of the
    cluster said that all who talk to it must know. Raises Failure where none is known."""
    if found.bootstrap_servers:
        return found
    from ...configuration.options.blob import BLOB_SECRET_FILE
    from ...configuration.options.cluster import (
        SCHEMA_REGISTRY_CREDENTIALS_FILE,
        SCHEMA_REGISTRY_URL,
        SKIPPED_OFFSETS,
    )
    from ..local.cluster_record import read_record

    record = read_record(found.home)
    if record is None:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"no cluster is known in {found.home}: start one with `tailrace cluster start`, go to where it was "
            "started, or name one with --home or --bootstrap-servers",
        )
    if record.embedded_kafka:
        _check_kafka(found.home)
    update = {"bootstrap.servers": record.bootstrap_servers}
    if not found.has("cluster.id"):
        update["cluster.id"] = record.cluster_id
    # Whoever joins the masters has to take part in their elections.
    update |= {key: text for key, text in record.high_availability.items() if not found.has(key)}
    # Whoever uploads, or serves, has to prove that it belongs here; whoever reads the log needs its schemas, and passes
    # over what its masters do.
    for option in (BLOB_SECRET_FILE, SCHEMA_REGISTRY_URL, SCHEMA_REGISTRY_CREDENTIALS_FILE, SKIPPED_OFFSETS):
        text = record.configuration.get(option.key)
        if text is not None and not found.has(option.key):
            update[option.key] = text
    return found.replace(update)


def _check_kafka(home: Path) -> None:
    from ....infra.disk_space import describe_shortage
    from ....infra.kafka import EmbeddedKafka, KafkaUnavailable

    try:
        EmbeddedKafka.attach((home / "kafka").absolute())
    except KafkaUnavailable:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"the Kafka of the cluster in {home} does not run: `tailrace cluster start` starts what is missing"
            f"{describe_shortage(home / 'kafka')}",
        ) from None
