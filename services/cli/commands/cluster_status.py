"""Builds the output of `tailrace cluster status`, as data for JSON and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ....schemas.states import JOB_ENDS
from ....schemas.types import JobStatus
from ...core.role import DISPATCHER, JOB_MASTER, kind_of
from ..args.common_options import Format
from ..exit_codes import CommandFailure, ExitCode
from ..render.formatting import format_count, format_time
from ..render.output import print_json, print_progress, print_result, print_table

if TYPE_CHECKING:
    from ...configuration import Configuration
    from ...core.leadership import Leader
    from ...history import HistoryProjection
    from ...history.cluster_view import LeaderView, WorkerView
    from ..local.cluster import LocalCluster
    from ..readers.orphaned_resources import ClusterResources


def servers(configuration: Configuration) -> str:
    """Returns the address of Kafka and where the cluster's leader is elected."""
    from ...configuration.options.high_availability import HIGH_AVAILABILITY, HighAvailability
    from ...configuration.options.kubernetes import NAMESPACE
    from ...configuration.options.zookeeper import ZOOKEEPER_QUORUM

    kafka = f"Kafka at {configuration.bootstrap_servers}"
    match configuration.get(HIGH_AVAILABILITY):
        case HighAvailability.NONE:
            return kafka
        case HighAvailability.ZOOKEEPER:
            return f"{kafka}, ZooKeeper at {configuration.get(ZOOKEEPER_QUORUM)}"
        case HighAvailability.KUBERNETES:
            return f"{kafka}, Leases in namespace {configuration.get(NAMESPACE)}"


def processes(local: LocalCluster) -> list[dict[str, Any]]:
    """Returns the processes of the cluster on this machine: name, pid (None if never started), and whether it runs."""
    found = [
        {"name": process.name, "pid": process.record.pid, "running": process.is_running()}
        for process in [*local.processes.values(), *local.workers.values()]
    ]
    if local.servers.kafka is not None:
        found.insert(
            0, {"name": "kafka", "pid": local.servers.kafka.pid, "running": local.servers.kafka.is_running()}
        )
    elif local.servers.embedded:
        found.insert(0, {"name": "kafka", "pid": None, "running": False})
    if local.servers.zookeeper.embedded:
        server = local.servers.zookeeper.server
        running = server is not None and server.is_running()
        found.insert(1, {"name": "zookeeper", "pid": server.pid if server else None, "running": running})
    return found


def cluster_to_data(
    fold: HistoryProjection,
    resources: ClusterResources,
    configuration: Configuration,
    local: LocalCluster | None,
) -> dict[str, Any]:
    """Returns the status of a cluster from its log, ZooKeeper, storage, and its processes on this machine.

    The caller reads `resources` before it reads the log.
    """
    import msgspec

    from ...history.cluster_view import jobs, leaders, master_address, workers
    from ..readers.dead_letter_counts import count_dead_letters
    from ..readers.orphaned_resources import find_orphaned_resources

    known, listed, leading = workers(fold.replica), jobs(fold), leaders(fold.replica)
    statuses = {job.job_id: job.status for job in listed}
    return {
        "offset": fold.replica.offset,
        "dead_letters": msgspec.to_builtins(count_dead_letters(configuration)),
        "leader": master_address(fold.replica),
        "leaders": msgspec.to_builtins(leading),
        "masters": _masters(leading, resources.candidates, local, fold.replica.leadership.leader(DISPATCHER)),
        "orphans": msgspec.to_builtins(
            find_orphaned_resources(configuration, resources, statuses, fold.replica.offset)
        ),
        "taskexecutors": _task_executors(known),
        "slots": {
            "total": sum(worker.slots for worker in known),
            "free": sum(worker.free_slots for worker in known),
        },
        "jobs": msgspec.to_builtins(listed),
        "job_counts": counts(each.status for each in listed),
    }


def read_by_rest(configuration: Configuration) -> dict[str, Any]:
    """Returns the status of a cluster as far as its REST server knows it: nothing of processes, dead letters and
    orphans. Raises LogUnavailable, RequestRefused."""
    import msgspec

    from ...history.cluster_view import LeaderView, WorkerView
    from ...log.rest_log import RestConnection
    from ...rest.api.cluster import FREE, ClusterSlots
    from ...rest.api.jobs import JobSummaries

    connection = RestConnection(configuration)
    answer, offset = connection.get("/api/v1/cluster")
    try:
        known = msgspec.convert(answer, ClusterSlots)
        listed = msgspec.convert(connection.get("/api/v1/jobs")[0], JobSummaries).jobs
    except msgspec.ValidationError as error:
        raise CommandFailure(
            ExitCode.UNREACHABLE,
            f"the answer of {connection.url} can't be read: {error}; use the release of the REST server",
        ) from None
    leading = [LeaderView(each.role, each.process, each.epoch, each.since) for each in known.leaders]
    job_ids = {job.id: job.job_id for job in listed}
    workers = [
        WorkerView(
            each.id,
            each.process,
            len(each.slots),
            list(each.slots).count(FREE),
            each.host,
            each.is_driven,
            each.quarantine,
            tuple(sorted({job_ids.get(known.jobs[job].id, "") for job in each.slots if job >= 0})),
        )
        for each in known.task_executors
    ]
    return {
        "rest_url": connection.url,
        "offset": offset,
        "leader": next((each.address for each in leading if each.role == DISPATCHER), None),
        "leaders": msgspec.to_builtins(leading),
        "masters": _masters(leading, None, None, None),
        "taskexecutors": _task_executors(workers),
        "slots": {
            "total": sum(each.slots for each in workers),
            "free": sum(each.free_slots for each in workers),
        },
        "jobs": [
            {
                "job_id": job.job_id,
                "name": job.name,
                "status": job.status,
                "reason": job.reason,
                "submitted": job.submitted * 1000 if job.submitted >= 0 else None,
                "ended": job.ended * 1000 if job.ended >= 0 else None,
                "tasks": job.tasks,
                "required_slots": job.required_slots,
                "missing_slots": job.missing_slots,
                "tenant": job.tenant,
            }
            for job in listed
        ],
        "job_counts": counts(JobStatus(job.status) for job in listed),
    }


def _task_executors(workers: Iterable[WorkerView]) -> list[dict[str, Any]]:
    import msgspec

    from ...history.cluster_view import describe_quarantine

    return [{**msgspec.to_builtins(each), "state": describe_quarantine(each)} for each in workers]


def _masters(
    leading: Sequence[LeaderView],
    candidates: tuple[str, ...] | None,
    local: LocalCluster | None,
    leader: Leader | None,
) -> list[dict[str, Any]]:
    """Returns every jobmanager that runs here, stands for election, or leads a role in the log.

    `name` is None for a jobmanager that this machine's cluster did not start.
    """
    ours = {master.address: master for master in local.masters.values()} if local is not None else {}
    running = [address for address, master in ours.items() if master.is_running()]
    known = dict.fromkeys([*running, *(candidates or ()), *(leader.address for leader in leading)])
    return [
        {
            "name": ours[address].name if address in ours else None,
            "address": address,
            "running": ours[address].is_running() if address in ours else None,
            "stands_for_election": None if candidates is None else address in candidates,
            "leads": [each.role for each in leading if each.address == address],
            "endpoints": dict(leader.endpoints) if leader is not None and leader.address == address else {},
        }
        for address in known
    ]


def show_processes(output: Format, processes: list[dict[str, Any]]) -> None:
    if output is Format.JSON:
        print_json({"processes": processes})
        return
    rows = [
        (str(process["name"]), str(process["pid"] or ""), "runs" if process["running"] else "does not run")
        for process in processes
    ]
    print_table("Processes", ("PROCESS", "PID", "STATE"), rows)


def _format_servers(master: dict[str, Any]) -> str:
    return " ".join(f"{name}={address}" for name, address in sorted(master["endpoints"].items()))


def show(data: dict[str, Any], cluster: str) -> None:
    """Prints the status. `cluster`: its name and place."""
    if data.get("processes"):
        show_processes(Format.TEXT, data["processes"])
    print_table(
        "Masters",
        ("MASTER", "ADDRESS", "LEADS", "SERVERS"),
        [
            (each["name"] or "", each["address"], format_roles(each), _format_servers(each))
            for each in data["masters"]
        ],
    )
    workers = [
        (
            worker["resource_id"],
            worker["address"],
            f"{worker['free_slots']}/{worker['slots']}",
            worker["state"],
        )
        for worker in data["taskexecutors"]
    ]
    print_table("TaskExecutors", ("TASKEXECUTOR", "ADDRESS", "FREE SLOTS", "STATE"), workers)
    live = [job for job in data["jobs"] if job["status"] not in JOB_ENDS]
    print_table(
        "Jobs",
        ("JOB", "NAME", "STATUS", "SUBMITTED"),
        [(job["job_id"], job["name"], job["status"], format_time(job["submitted"])) for job in live],
    )
    for orphan in data.get("orphans", ()):
        print_result(f"orphan {orphan['kind']} {orphan['path']}: {orphan['reason']}")
    if data.get("orphans"):
        print_progress("`tailrace cluster clean` removes orphans")
    for letters in data.get("dead_letters", ()):
        print_result(
            f"{format_count(letters['records'], 'record')} of {letters['topic']} ignored, the last at offset "
            f"{letters['offset']}: {letters['reason']}"
        )
    slots = data["slots"]
    print_result(
        f"{cluster}: {slots['free']} of {slots['total']} slots free, {_format_jobs(data['job_counts'])}, "
        f"log at offset {data['offset']}"
    )


def format_roles(master: dict[str, Any]) -> str:
    """Returns the roles that a master leads, and the number of its JobMasters."""
    roles = [role for role in master["leads"] if kind_of(role) != JOB_MASTER]
    jobs = len(master["leads"]) - len(roles)
    parts = [*roles, *([format_count(jobs, "job")] if jobs else [])]
    if not parts:
        return "nothing: stands by" if master["stands_for_election"] else "nothing"
    # The claims of a dead master stay in the log until another master claims the roles.
    gone = master["running"] is False or master["stands_for_election"] is False
    return ", ".join(parts) + (" (is gone)" if gone else "")


def counts(statuses: Iterable[JobStatus]) -> dict[str, int]:
    """Returns the number of running, suspended and ended jobs. A job that starts or ends counts as running."""
    found = Counter(
        "ended" if status in JOB_ENDS else "suspended" if status is JobStatus.SUSPENDED else "running"
        for status in statuses
    )
    return {kind: found[kind] for kind in ("running", "suspended", "ended")}


def _format_jobs(count: dict[str, int]) -> str:
    running, suspended, ended = count["running"], count["suspended"], count["ended"]
    parts = [f"{running} job{' runs' if running == 1 else 's run'}"]
    if suspended:
        parts.append(f"{suspended} {'is' if suspended == 1 else 'are'} suspended")
    parts.append(f"{ended} {'has' if ended == 1 else 'have'} ended")
    return ", ".join(parts)
