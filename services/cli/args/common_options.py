"""Options that many commands share, and how a command finds its cluster.

The first source with a value wins: the command line, the environment (`TAILRACE_...`), `<home>/tailrace.yaml`, and for
the cluster's addresses `<home>/cluster.json`, which `cluster start` writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..exit_codes import CommandFailure, ExitCode

if TYPE_CHECKING:
    from ....schemas.types import PythonFile
    from ...configuration import Configuration
    from ..local.cluster_record import ClusterRecord

Home = Annotated[
    Path | None,
    typer.Option(
        help="The directory with a local cluster's data, logs and cluster.json. \\[default: .tailrace]",
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        help="The address of Kafka: host:port,... \\[default: the cluster of --home]",
    ),
]
ClusterId = Annotated[
    str | None,
    typer.Option(
        help="The id of the cluster on that Kafka. \\[default: the cluster of --home, else 'tailrace']",
    ),
]
Definitions = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        metavar="KEY=VALUE",
        help="Set an option. `tailrace config` and docs/configuration.md list them. May be given several times.",
    ),
]

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ARGS]...",
        help="Arguments of the program: everything after its path. Put options of tailrace before the path.",
    ),
]
Parallelism = Annotated[
    int | None,
    typer.Option(
        "--parallelism", "-p", min=1, help="The default parallelism of operators. \\[default: the program's]"
    ),
]
PyFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--py-file",
        metavar="PATH",
        help="Ship a module, a package's directory, a zip file, a wheel or a data file. The program and its jobs' "
        "functions are imported from the shipped files first. May be given several times.",
    ),
]
Requirements = Annotated[
    str | None,
    typer.Option(
        "--requirements",
        metavar="FILE",
        help="Ship the packages of a requirements file: wheels, which pip resolves here.",
    ),
]
Archives = Annotated[
    list[str] | None,
    typer.Option(
        "--archive",
        metavar="PATH[#NAME]",
        help="Ship a zip or tar file, such as a packed environment. It is unpacked where the job runs, into the "
        "directory NAME. May be given several times.",
    ),
]


class Format(StrEnum):
    """The format of a command's output on stdout."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="The output format.")]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options that name a cluster. A command has them as one parameter (`option_groups.py`)."""

    home: Home = None
    bootstrap_servers: BootstrapServers = None
    cluster_id: ClusterId = None

    def configuration(
        self,
        definitions: Sequence[str] | None = None,
        more: Mapping[str, tuple[str, object]] | None = None,
    ) -> Configuration:
        """Returns the configuration: command line, then environment, then the home's tailrace.yaml, then the defaults.

        `definitions` are the values of -D. `more` maps other command line options to (key, value); a value of None
        means not given. Raises ConfigurationError for an invalid option.
        """
        from ...configuration import Setting, load_configuration

        given: dict[str, tuple[str, object]] = {
            "--home": ("home", self.home),
            "--bootstrap-servers": ("bootstrap.servers", self.bootstrap_servers),
            "--cluster-id": ("cluster.id", self.cluster_id),
            **(more or {}),
        }
        settings = [
            Setting(key, str(value), name) for name, (key, value) in given.items() if value is not None
        ]
        return load_configuration(settings, definitions or ())

    def find(
        self,
        definitions: Sequence[str] | None = None,
        more: Mapping[str, tuple[str, object]] | None = None,
    ) -> Configuration:
        """Like `configuration`, for an existing cluster, with its Kafka. Raises CommandFailure if none is known.

        If Kafka is not that of the home, the command fails at once where it cannot use it: KafkaRefusal,
        KafkaUnreachable.
        """
        found = self.locate(definitions, more)
        if self.configuration(definitions, more).bootstrap_servers:
            from ..readers.kafka_check import check_kafka_reachable

            check_kafka_reachable(found)
        return found

    def find_or_rest(self) -> Configuration:
        """Like `find`, for a command that also works by REST. Raises CommandFailure for a REST server and a Kafka."""
        found = self.with_rest()
        return self.find() if found is None else found

    def with_rest(self, definitions: Sequence[str] | None = None) -> Configuration | None:
        """Returns the configuration if a REST server is named, otherwise None. Raises CommandFailure if a Kafka is
        named, too."""
        from ...configuration.options.rest import REST_URL

        found = self.configuration(definitions)
        if not found.get(REST_URL):
            return None
        for name, value in (("--bootstrap-servers", self.bootstrap_servers), ("--home", self.home)):
            if value is not None:
                raise CommandFailure(
                    ExitCode.USAGE, f"--rest and {name} exclude each other: choose one cluster"
                )
        return found

    def locate(
        self,
        definitions: Sequence[str] | None = None,
        more: Mapping[str, tuple[str, object]] | None = None,
    ) -> Configuration:
        """Like `find`, for a process that waits for Kafka, or does not need it. Raises CommandFailure if a REST server
        is named instead of Kafka."""
        found = self.configuration(definitions, more)
        check_kafka_is_wanted(found)
        return resolve_location(found)


DEFAULT_CLUSTER = ClusterOptions()


_RUN_OPTIONS = frozenset(
    {"-p", "--parallelism", "-d", "--detached", "-D", "-s", "--from-savepoint", "--allow-non-restored-state"}
    | {
        "--py-file",
        "--requirements",
        "--archive",
        "--job-id",
        "-o",
        "--output",
        "--home",
        "--bootstrap-servers",
        "--cluster-id",
        "--graph",
    }
)


@contextmanager
def misplaced_options_named(program: str, arguments: Sequence[str]) -> Iterator[None]:
    """If a program rejects its arguments, adds the name of a misplaced tailrace option. Raises ProgramError."""
    from ....pipelines.graph.errors import ProgramError

    try:
        yield
    except ProgramError as error:
        taken = next((text for text in arguments if text.partition("=")[0] in _RUN_OPTIONS), None)
        if taken is None or " exited with status " not in error.reason:
            raise
        raise ProgramError(
            f"{error.reason}; {taken} stands after {program} and goes to the program: put options of tailrace before "
            "the program",
            location=error.location,
        ) from error


def is_entry_point(program: str) -> bool:
    """Whether a program is named as module:function."""
    return ":" in program and not Path(program).exists()


def job_options(found: Configuration) -> dict[str, str]:
    """Returns the job options of -D. Raises CommandFailure for an option of -D that is no job or client option."""
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


def shipped_files(
    paths: Sequence[str] | None, requirements: str | None = None, archives: Sequence[str] | None = None
) -> tuple[PythonFile, ...]:
    """Collects the files to ship. Raises ProgramError for a file that can't be shipped."""
    from ....pipelines.graph.python_files import check, collect_files, merge_files, read_archive

    files: tuple[PythonFile, ...] = ()
    if requirements is not None:
        from ....pipelines.api.requirements import resolve_requirements

        files = resolve_requirements(requirements)
    for archive in archives or ():
        path, _, name = archive.partition("#")
        files = merge_files(files, (read_archive(path, name or None),))
    for path in paths or ():
        files = merge_files(files, collect_files(path))
    check(files)
    return files


def check_kafka_is_wanted(found: Configuration) -> None:
    """Raises CommandFailure if a REST server is named instead of Kafka."""
    from ...configuration.options.rest import REST_URL

    if url := found.get(REST_URL):
        raise CommandFailure(
            ExitCode.USAGE,
            f"this command needs Kafka, and does not work by REST ({url}): remove --rest or TAILRACE_REST_URL, and "
            "run it on a machine that reaches Kafka",
        )


def resolve_location(found: Configuration) -> Configuration:
    """Adds the addresses of Kafka and ZooKeeper from cluster.json, and the cluster's shared options.

    If `bootstrap.servers` is given, they are added only if the record is of that cluster. Raises CommandFailure if no
    cluster is known.
    """
    from ...configuration.options.blob import BLOB_SECRET_FILE, BLOB_TLS_PREFIX
    from ...configuration.options.cluster import (
        SCHEMA_REGISTRY_CREDENTIALS_FILE,
        SCHEMA_REGISTRY_URL,
        SKIPPED_OFFSETS,
    )
    from ...configuration.options.kafka import is_property
    from ..local.cluster_record import read_record

    record = read_record(found.home)
    if found.bootstrap_servers and (record is None or not _is_record_of(record, found)):
        return found
    if record is None:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"no cluster is known in {found.home}: start one with `tailrace cluster start`, change to the directory "
            "where it was started, or name one with --home or --bootstrap-servers",
        )
    update: dict[str, str] = {}
    if not found.bootstrap_servers:
        if record.embedded_kafka:
            _check_kafka(found.home)
        update["bootstrap.servers"] = record.bootstrap_servers
    if not found.has("cluster.id"):
        update["cluster.id"] = record.cluster_id
    # A process that joins the masters takes part in their elections.
    update |= {key: text for key, text in record.high_availability.items() if not found.has(key)}
    # Blob clients and servers need the secret. Readers of the log need its schemas, and skip the same offsets as the
    # masters.
    for option in (BLOB_SECRET_FILE, SCHEMA_REGISTRY_URL, SCHEMA_REGISTRY_CREDENTIALS_FILE, SKIPPED_OFFSETS):
        text = record.configuration.get(option.key)
        if text is not None and not found.has(option.key):
            update[option.key] = text
    shared = {
        key: text
        for key, text in record.configuration.items()
        if is_property(key) or key.startswith(BLOB_TLS_PREFIX)
    }
    update |= {key: text for key, text in shared.items() if not found.has(key)}
    return found.replace(update)


def _is_record_of(record: ClusterRecord, found: Configuration) -> bool:
    """Whether this is the record of the cluster that the configuration names."""
    recorded, given = (
        set(servers.split(",")) for servers in (record.bootstrap_servers, found.bootstrap_servers)
    )
    return record.cluster_id == found.cluster_id and not recorded.isdisjoint(given)


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
