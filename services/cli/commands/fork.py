"""`tailrace fork`: creates a cluster with simulated TaskExecutors whose log starts with another cluster's log."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..args.common_options import Format, Output
from ..args.log_source import DEFAULT_LOG, At, LogOptions, position_at
from ..exit_codes import CommandFailure, ExitCode
from ..readers.kafka_check import check_kafka_reachable
from ..render.output import print_json, print_progress, print_result
from ..render.progress import ProgressLine

if TYPE_CHECKING:
    from ...configuration import Configuration
    from ...history.archive.importer import ImportResult
    from ...history.log_source import LogSource


def fork(
    to: Annotated[str, typer.Option("--to", metavar="CLUSTER", help="The id of the new cluster.")],
    place: At = None,
    to_home: Annotated[
        Path | None,
        typer.Option(
            "--to-home", metavar="DIR", help="The new cluster's home. \\[default: .tailrace-CLUSTER]"
        ),
    ] = None,
    to_kafka: Annotated[
        str | None,
        typer.Option(
            "--to-kafka",
            metavar="HOST:PORT,...",
            help="The Kafka for the new cluster's topics. \\[default: an own Kafka, in the new home]",
        ),
    ] = None,
    output: Output = Format.TEXT,
    log_options: LogOptions = DEFAULT_LOG,
) -> None:
    """Create a test cluster that continues a history from an offset or time: real masters, simulated TaskExecutors.

    The command simulates the TaskExecutors that were registered at that offset, with their resource ids and tasks. It
    does not change the topics or checkpoints of the original cluster.
    """
    target = _target(to, to_home, to_kafka)
    with log_options.open() as source:
        _check_whole(source)
        wanted = position_at(source, place)
        offset = source.log.end() - 1 if wanted is None else wanted
        with _kafka(target) as reachable:
            imported = _create_fork(source, offset, target, reachable, external=to_kafka)
        cluster = source.cluster
    from ...simulation.fork import read_members

    members = read_members(target.home)
    if output is Format.JSON:
        data = {
            "cluster": to,
            "home": str(target.home),
            "forked_from": cluster,
            "offset": offset,
            "state_hash": imported.state_hash,
            "task_executors": [member.resource_id for member in members],
        }
        print_json(data)
        return
    slots = sum(member.slots for member in members)
    print_result(f"cluster {to} starts with the {offset + 1:,} events of {cluster} up to offset {offset}")
    print_result(f"state hash {imported.state_hash}, the same in both clusters")
    print_result(
        f"{len(members)} TaskExecutors with {slots} slots will be simulated; its home is {target.home}"
    )
    print_progress(f"`tailrace cluster start --home {target.home}` starts it")


def _target(to: str, to_home: Path | None, to_kafka: str | None) -> Configuration:
    """Returns the configuration of the new cluster. Raises CommandFailure if its home already holds a cluster."""
    from ...configuration import Configuration, ConfigurationError
    from ...configuration.sources import FILE
    from ..local.cluster_record import record_path

    path = to_home or Path(f".tailrace-{to}")
    values = {"cluster.id": to, "home": str(path)}
    if to_kafka is not None:
        values["bootstrap.servers"] = to_kafka
    try:
        made = Configuration(values)
    except ConfigurationError as error:
        raise CommandFailure(ExitCode.USAGE, f"--to {to}: {error}") from error
    for taken in (path / FILE, record_path(path)):
        if taken.exists():
            raise CommandFailure(
                ExitCode.USAGE,
                f"{taken} exists: {path} is already the home of a cluster; choose another one with --to-home",
            )
    return made


def _make(home: Path) -> None:
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "it is a file" if isinstance(error, FileExistsError) else error.strerror or error
        raise CommandFailure(
            ExitCode.USAGE, f"{home} can't be the home of a cluster: {why}; choose another one with --to-home"
        ) from error


def _check_whole(source: LogSource) -> None:
    from ...history.log_position import first_offset

    first = first_offset(source.log) if source.whole else None
    if first != 0:
        what = "it is a selection of events" if first is None else f"it starts at offset {first}"
        raise CommandFailure(
            ExitCode.ARCHIVE,
            f"{source.log.topic} can't be forked: {what}, but the new cluster needs the whole log from offset 0",
        )


@contextmanager
def _kafka(target: Configuration) -> Iterator[Configuration]:
    """Yields the target's configuration with the address of its Kafka. Kafka runs until the context ends."""
    from ..local.servers import Servers

    if target.bootstrap_servers:
        check_kafka_reachable(target)
        yield target
        return
    _make(target.home)
    servers = Servers(target.home.absolute(), target, print_progress)
    try:
        servers.begin(detached=False)
        servers.join()
        yield target.replace(servers.settings())
    finally:
        servers.stop()


def _create_fork(
    source: LogSource, offset: int, target: Configuration, reachable: Configuration, *, external: str | None
) -> ImportResult:
    from ...history.time_travel import replica_at
    from ...host.host import wall_clock
    from ...simulation.fork import read_fork_members, read_fork_settings, write_members, write_settings

    with ProgressLine(f"reads {source.log.topic}", offset + 1) as reading:
        replica = replica_at(source, offset, lambda done, _: reading(done))
    _make(target.home)
    imported = _import_history(source, offset, target, reachable)
    write_members(target.home, read_fork_members(replica))
    # Write the settings last: they mark the directory as the home of a cluster.
    more = {} if external is None else {"bootstrap.servers": target.bootstrap_servers}
    # The new cluster's clock continues at the fork's time, so that no timeout has expired since then.
    behind = wall_clock() - _time_at(source, offset)
    write_settings(target.home, read_fork_settings(replica, target.cluster_id, behind, more))
    return imported


def _time_at(source: LogSource, offset: int) -> int:
    """Returns the latest time of the last 1,000 events up to `offset`, or the current time if there are none."""
    from ...host.host import wall_clock
    from ...log.event_log import read_to_end

    batches = read_to_end(source.log, max(0, offset - 1_000), end=offset + 1)
    return max((record.header.time for batch in batches for record in batch), default=wall_clock())


def _import_history(
    source: LogSource, offset: int, target: Configuration, reachable: Configuration
) -> ImportResult:
    """Copies the log through an exported file."""
    from ...history.archive.exporter import EventSelection, export
    from ...history.archive.formats import ArchiveFormat
    from ..readers.log_import import import_log

    count = offset + 1
    with tempfile.TemporaryDirectory(prefix="fork-", dir=target.home) as own:
        path = Path(own) / "history.avro"
        with ProgressLine(f"copies {source.log.topic}", count) as progress:
            selection = EventSelection(0, count)
            export(source.log, source.cluster, selection, path, ArchiveFormat.AVRO, on_progress=progress)
        return import_log(path, reachable)[1]
