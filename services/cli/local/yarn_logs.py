"""The logs of an application in YARN: of its running containers, or those on HDFS after its end."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...configuration import Configuration
from ...yarn.application import ENDED, ApplicationReport
from ...yarn.container_logs import read_running_logs
from ...yarn.errors import YarnError
from ...yarn.jvm_application_client import JvmApplicationClient
from ..exit_codes import CommandFailure, ExitCode
from ..render.output import print_progress, print_verbatim
from .cluster_record import read_record

_AGGREGATION_TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.5
_UNFINISHED: Final = frozenset({"NOT_START", "RUNNING", "RUNNING_WITH_FAILURE"})
_CONTAINER: Final = "Container: "


def print_logs(configuration: Configuration, application_id: str | None, container_id: str | None) -> None:
    """Prints the logs; `application_id`: None for that of cluster.json. Raises CommandFailure, YarnError."""
    home = configuration.home
    record = read_record(home)
    wanted = application_id or (record.yarn_application if record else "")
    if not wanted:
        raise CommandFailure(
            ExitCode.USAGE, f"{home} has no application in YARN: name one with --application ID"
        )
    home.mkdir(parents=True, exist_ok=True)
    with JvmApplicationClient.from_configuration(configuration) as client:
        report = client.find_report(wanted)
        if report is None:
            raise CommandFailure(
                ExitCode.NOT_FOUND,
                f"YARN does not know {wanted}: `yarn application -list` shows those it knows",
            )
        count = 0
        logs = _aggregated(client, wanted, report) if report.state in ENDED else _running(client, wanted)
        for found, text in logs:
            if container_id in (None, found):
                print_verbatim(text)
                count += 1
    if not count:
        whose = f"container {container_id}" if container_id else "any container"
        raise CommandFailure(
            ExitCode.NOT_FOUND, f"{wanted} is {report.state}, and there are no logs of {whose}"
        )


def _running(client: JvmApplicationClient, application_id: str) -> Iterator[tuple[str, str]]:
    for container in client.containers(application_id):
        for text in read_running_logs(container):
            yield container.container_id, text


def _aggregated(
    client: JvmApplicationClient, application_id: str, report: ApplicationReport
) -> Iterator[tuple[str, str]]:
    deadline = time.monotonic() + _AGGREGATION_TIMEOUT_S
    if report.log_aggregation in _UNFINISHED:
        print_progress(f"{application_id} has just ended: waits until its logs are on HDFS")
    while report.log_aggregation in _UNFINISHED and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        report = client.find_report(application_id) or report
    if report.log_aggregation == "DISABLED":
        raise YarnError(
            f"the logs of {application_id} are not on HDFS, because this YARN has no log aggregation: set "
            "yarn.log-aggregation-enable to true on its nodes, or read the files in yarn.nodemanager.log-dirs there"
        )
    with tempfile.TemporaryDirectory(prefix="tailrace-logs-") as scratch:
        target = Path(scratch) / "logs"
        if not client.write_aggregated_logs(application_id, report.user, target):
            raise YarnError(
                f"there are no logs of {application_id} on HDFS (log aggregation: {report.log_aggregation}): only "
                f"{report.user} may read them, and yarn.log-aggregation.retain-seconds limits how long"
            )
        yield from _split(target)


def _split(path: Path) -> Iterator[tuple[str, str]]:
    """Yields (container, lines of one of its files) from a file in the format of `yarn logs`."""
    container, lines = "", list[str]()
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(_CONTAINER):
                if lines:
                    yield container, "".join(lines)
                container, lines = line.removeprefix(_CONTAINER).partition(" ")[0].strip(), []
            lines.append(line)
    if lines:
        yield container, "".join(lines)
