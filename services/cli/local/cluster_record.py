"""`<home>/cluster.json`: the cluster of a home, the address of its Kafka, and its processes.

A process is identified by its pid, its start time, and the boot of its host. A reused pid is therefore never taken for
the process, and never killed, also not on another host that has the same home.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ....infra.processes import ProcessIdentity
from ..exit_codes import CommandFailure, ExitCode


class ProcessRecord(ProcessIdentity, frozen=True, kw_only=True):
    """A process of the cluster; `log` is its log file."""

    name: str
    """The name of a jobmanager, or a TaskExecutor's resource id."""
    log: str


class ClusterRecord(msgspec.Struct, frozen=True):
    """The content of cluster.json; `embedded_...` says whether Kafka or ZooKeeper is one of the cluster's processes.

    `configuration`: what the command line of its start has set, which holds for what a later start completes.
    `high_availability`: what its masters were told of that, ZooKeeper's address included; for whoever joins them.
    `yarn_application`: the id of the application if the cluster runs in YARN (`tailrace yarn-session`).
    """

    cluster_id: str
    bootstrap_servers: str
    embedded_kafka: bool
    processes: tuple[ProcessRecord, ...] = ()
    configuration: dict[str, str] = {}
    embedded_zookeeper: bool = False
    high_availability: dict[str, str] = {}
    yarn_application: str = ""


def record_path(home: Path) -> Path:
    """Returns the path of the record of a home."""
    return home / "cluster.json"


def read_record(home: Path) -> ClusterRecord | None:
    """Returns the cluster of a home; None if there is none. Raises CommandFailure for a damaged file."""
    path = record_path(home)
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"{path} can't be read ({error}): remove it, see with `ps` whether processes of the cluster still run, "
            "and start the cluster again",
        ) from error


def write_record(home: Path, record: ClusterRecord) -> None:
    """Replaces the record of a home atomically."""
    path = record_path(home)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    fresh.replace(path)


def remove_record(home: Path) -> None:
    """Deletes the record of a home."""
    record_path(home).unlink(missing_ok=True)


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Allows one start or stop at a time in a home. Raises CommandFailure if another one runs."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "cluster.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailure(
                ExitCode.PROCESS_FAILED,
                f"another `tailrace cluster start` or `stop` is at work in {home}: wait until it has ended",
            ) from None
        yield
