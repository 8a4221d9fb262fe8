"""`tailrace cluster start | stop | status`: a cluster whose processes run on this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.states import JOB_ENDS
from ...schemas.types import JobStatus
from .errors import ExitCode, Failure
from .options import (
    BootstrapServers,
    ClusterId,
    Definitions,
    Format,
    Home,
    Output,
    configuration,
    find_cluster,
)
from .show import clock, result, table, tell

if TYPE_CHECKING:
    from ..history import Fold
    from .local import LocalCluster

app = typer.Typer(help="Start, stop and look at a cluster on this machine.", no_args_is_help=True)


@app.command()
def start(
    taskexecutors: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="How many TaskExecutors. \\[default: 2, or 0 with resourcemanager.mode=active]",
        ),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Slots of each. \\[default: 2]")] = None,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
    definitions: Definitions = None,
) -> int:
    """Start Kafka (unless an address is given), a jobmanager and TaskExecutors, in the background.

    Starts what is missing; on a cluster that runs it changes nothing.
    """
    from .local import LocalCluster, Options

    more = {"--slots": ("taskmanager.numberOfTaskSlots", slots)}
    found = configuration(home, bootstrap_servers, cluster_id, definitions, more)
    with progress("Starting the cluster") as say:
        local = LocalCluster(found, progress=say)
        fresh = local.start(Options(taskexecutors=taskexecutors))
    addresses = f"Kafka at {local.configuration.bootstrap_servers}, home {found.home}"
    if fresh:
        tell(f"cluster {found.cluster_id} runs: {addresses}")
    else:
        tell(f"cluster {found.cluster_id} runs already: {addresses}")
    return ExitCode.OK


@app.command()
def stop(
    suspend: Annotated[
        bool, typer.Option("--suspend", help="Suspend the jobs instead: they go on with the next start.")
    ] = False,
    home: Home = None,
) -> int:
    """Cancel the jobs, let the processes leave in order, then stop Kafka. What the log holds stays."""
    from .local import LocalCluster

    found = configuration(home, None, None)
    with progress("Stopping the cluster") as say:
        local = LocalCluster.of(found, progress=say)
        if local is None:
            say(f"no cluster runs in {found.home}: nothing to stop")
            return ExitCode.OK
        local.stop(suspend=suspend)
    where = f"in {local.kafka_dir}" if local.kafka is not None else "on its Kafka"
    tell(f"cluster {local.configuration.cluster_id} has stopped; its log stays {where}")
    tell("`tailrace cluster start` goes on from there")
    return ExitCode.OK


@app.command()
def status(
    output: Output = Format.TEXT,
    home: Home = None,
    bootstrap_servers: BootstrapServers = None,
    cluster_id: ClusterId = None,
) -> int:
    """Show processes, TaskExecutors, slots and jobs. Exit code 3 where a part of the cluster does not run."""
    from .local import LocalCluster

    found = configuration(home, bootstrap_servers, cluster_id)
    local = LocalCluster.of(found)
    processes = _processes(local) if local is not None else []
    if local is not None and local.kafka is None and local.embedded:
        _show_processes(output, processes)
        raise Failure(
            ExitCode.UNREACHABLE,
            f"the Kafka of the cluster in {found.home} does not run: `tailrace cluster start` starts what is missing",
        )
    reachable = find_cluster(home, bootstrap_servers, cluster_id)
    from ..connections import event_log
    from ..history import Fold

    log, fold = event_log(reachable, timeout=10.0), Fold()
    for _ in fold.read(log):
        pass
    data = {
        "cluster_id": reachable.cluster_id,
        "bootstrap_servers": reachable.bootstrap_servers,
        "processes": processes,
        **_seen(fold),
    }
    if output is Format.JSON:
        import json

        result(json.dumps(data))
    else:
        _show(data)
    return ExitCode.OK if all(each["running"] for each in processes) else ExitCode.UNREACHABLE


@contextmanager
def progress(title: str) -> Iterator[Any]:
    """A function that tells of each step; on a terminal with a spinner for what is going on."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield tell
        return
    with console.status(f"{title} ..."):
        yield lambda line: console.print(f"  {line}", markup=False, highlight=False)


def _processes(local: LocalCluster) -> list[dict[str, Any]]:
    found = [
        {"name": process.name, "pid": process.record.pid, "running": process.is_running()}
        for process in [*local.processes.values(), *local.workers.values()]
    ]
    if local.kafka is not None:
        found.insert(0, {"name": "kafka", "pid": local.kafka.pid, "running": local.kafka.is_running()})
    elif local.embedded:
        found.insert(0, {"name": "kafka", "pid": None, "running": False})
    return found


def _seen(fold: Fold) -> dict[str, Any]:
    import msgspec

    from ..history.views import jobs, master_address, workers

    known, listed = workers(fold.replica), jobs(fold)
    return {
        "offset": fold.replica.offset,
        "leader": master_address(fold.replica),
        "taskexecutors": msgspec.to_builtins(known),
        "slots": {
            "total": sum(worker.slots for worker in known),
            "free": sum(worker.free_slots for worker in known),
        },
        "jobs": msgspec.to_builtins(listed),
        "job_counts": counts(each.status for each in listed),
    }


def _show_processes(output: Format, processes: list[dict[str, Any]]) -> None:
    if output is Format.JSON:
        import json

        result(json.dumps({"processes": processes}))
        return
    rows = [
        (str(each["name"]), str(each["pid"] or ""), "runs" if each["running"] else "does not run")
        for each in processes
    ]
    table("Processes", ("PROCESS", "PID", "STATE"), rows)


def _show(data: dict[str, Any]) -> None:
    if data["processes"]:
        _show_processes(Format.TEXT, data["processes"])
    workers = [
        (worker["resource_id"], worker["address"], f"{worker['free_slots']}/{worker['slots']}")
        for worker in data["taskexecutors"]
    ]
    table("TaskExecutors", ("TASKEXECUTOR", "ADDRESS", "FREE SLOTS"), workers)
    live = [job for job in data["jobs"] if job["status"] not in JOB_ENDS]
    table(
        "Jobs",
        ("JOB", "NAME", "STATUS", "SUBMITTED"),
        [(job["job_id"], job["name"], job["status"], clock(job["submitted"])) for job in live],
    )
    slots = data["slots"]
    result(
        f"cluster {data['cluster_id']} on Kafka at {data['bootstrap_servers']}: "
        f"{slots['free']} of {slots['total']} slots free, {_told(data['job_counts'])}, "
        f"log at offset {data['offset']}"
    )


def counts(statuses: Iterable[JobStatus]) -> dict[str, int]:
    """How many jobs run (or are on their way to that, or to their end), are suspended, and have ended."""
    found = Counter(
        "ended" if each in JOB_ENDS else "suspended" if each is JobStatus.SUSPENDED else "running"
        for each in statuses
    )
    return {kind: found[kind] for kind in ("running", "suspended", "ended")}


def _told(count: dict[str, int]) -> str:
    running, suspended, ended = count["running"], count["suspended"], count["ended"]
    said = [f"{running} job{' runs' if running == 1 else 's run'}"]
    if suspended:
        said.append(f"{suspended} {'is' if suspended == 1 else 'are'} suspended")
    said.append(f"{ended} {'has' if ended == 1 else 'have'} ended")
    return ", ".join(said)
