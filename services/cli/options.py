"""Options that many commands share, and how a command finds its cluster.

In this order: the command line, the environment (`TAILRACE_...`), `<home>/cluster.json`, which `cluster start` writes.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import ExitCode, Failure

if TYPE_CHECKING:
    from ..configuration import Configuration

Home = Annotated[
    Path | None,
    typer.Option(
        help="Where a cluster on this machine keeps its data, logs and cluster.json. \\[default: .tailrace]",
        envvar="TAILRACE_HOME",
        show_envvar=False,
    ),
]
BootstrapServers = Annotated[
    str | None,
    typer.Option(
        help="Kafka, host:port,... \\[default: the cluster of --home]",
        envvar="TAILRACE_BOOTSTRAP_SERVERS",
        show_envvar=False,
    ),
]
ClusterId = Annotated[
    str | None,
    typer.Option(
        help="Which cluster on that Kafka. \\[default: the cluster of --home, else 'tailrace']",
        envvar="TAILRACE_CLUSTER_ID",
        show_envvar=False,
    ),
]


class Format(StrEnum):
    """What a command prints on stdout."""

    TEXT = "text"
    JSON = "json"


Output = Annotated[Format, typer.Option("--output", "-o", help="For people, or JSON for machines.")]


def configuration(
    home: Path | None, bootstrap_servers: str | None, cluster_id: str | None, **more: Any
) -> Configuration:
    """The command line over the environment over the defaults. Raises Failure for what is impossible."""
    from pydantic import ValidationError

    from ..configuration import Configuration

    given = {"home": home, "bootstrap_servers": bootstrap_servers, "cluster_id": cluster_id, **more}
    try:
        return Configuration(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise Failure(
            ExitCode.USAGE,
            f"{where} is {first['input']!r}: {first['msg']}; give --{where.replace('_', '-')} "
            f"or set TAILRACE_{where.upper()}",
        ) from None


def find_cluster(
    home: Path | None, bootstrap_servers: str | None, cluster_id: str | None, **more: Any
) -> Configuration:
    """The configuration of a cluster that exists, with Kafka's address. Raises Failure where none is known."""
    found = configuration(home, bootstrap_servers, cluster_id, **more)
    if found.bootstrap_servers:
        return found
    from .local.record import read_record

    record = read_record(found.home)
    if record is None:
        raise Failure(
            ExitCode.UNREACHABLE,
            f"no cluster is known in {found.home}: start one with `tailrace cluster start`, go to where it was "
            "started, or name one with --home or --bootstrap-servers",
        )
    if record.embedded_kafka:
        _check_kafka(found.home)
    update = {"bootstrap_servers": record.bootstrap_servers}
    if cluster_id is None and "cluster_id" not in found.model_fields_set:
        update["cluster_id"] = record.cluster_id
    return found.model_copy(update=update)


def _check_kafka(home: Path) -> None:
    from ...infra.kafka import EmbeddedKafka, KafkaUnavailable

    try:
        EmbeddedKafka.attach((home / "kafka").absolute())
    except KafkaUnavailable:
        raise Failure(
            ExitCode.UNREACHABLE,
            f"the Kafka of the cluster in {home} does not run: `tailrace cluster start` starts what is missing",
        ) from None
