"""Stories of a cluster, told by the simulation; `transcripts/` holds what is said in each.

`python -m services.scenarios` (in `tests/`) prints all that is said, word for word: it must not depend on the order of
any hash.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import msgspec

from tailrace.schemas import dispatcher
from tailrace.schemas.event import Record
from tailrace.schemas.types import EntryPoint, ExecutionState, JobGraph

from .simulation import Cluster, graph
from .world import World

MASTER_ROLES = ("dispatcher", "resource_manager", "job_master")


def a_job_finishes() -> Cluster:
    """The shortest story: two tasks in one slot."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1")
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


def the_task_executor_is_there_first() -> Cluster:
    """Its registration waits in the log until somebody leads the ResourceManager."""
    cluster = Cluster()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.start_master()
    cluster.settle()
    return cluster


def a_job_is_cancelled_during_its_deployment() -> Cluster:
    """One of the tasks runs, the other was not told yet."""
    cluster = Cluster(on_run=lambda *_: None)
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=1)
    cluster.settle()
    cluster.submit("j1")
    cluster.settle()
    cluster.say("client/test", "dispatcher", dispatcher.CancelJob(job_id="j1"))
    cluster.settle()
    return cluster


def a_job_wants_more_slots_than_there_are() -> Cluster:
    """It waits for its slots, then fails, and gives back what it got."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j1", graph(3))
    cluster.settle()
    cluster.tick(11)
    return cluster


def a_job_id_is_taken() -> Cluster:
    """The second submission is rejected; the first job goes on."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1")
    cluster.settle()
    cluster.submit("j1", client="client/second")
    cluster.settle()
    return cluster


def a_program_is_built_and_another_fails_to() -> Cluster:
    """Entry points are built by the Dispatcher's shell."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    for job_id, target in (("j1", "program:main"), ("j2", "program:fails")):
        entry_point = EntryPoint(target=target, arguments=())
        body = dispatcher.SubmitJob(job_id=job_id, entry_point=entry_point)
        cluster.say("client/test", "dispatcher", body)
        if job_id == "j2":
            failed = dispatcher.JobGraphFailed(job_id=job_id, reason="program:fails raised ValueError")
            cluster.obeyed.add(("dispatcher", f"build/j2/{cluster.replica.offset}"))
            cluster.say("dispatcher", "dispatcher", failed)
        cluster.settle()
    return cluster


def a_task_fails() -> Cluster:
    """The job fails: its other tasks are cancelled first, then its slots are freed."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j1", graph(2))
    cluster.settle()
    task_executor = cluster.replica.states["task_executor/te-1"]
    attempt = min(task_executor.tasks, key=lambda each: task_executor.tasks[each].cause)
    cluster.report("task_executor/te-1", attempt, ExecutionState.FAILED, "ZeroDivisionError at job.py:3")
    cluster.settle()
    return cluster


def the_master_crashes_with_a_slot_request_in_flight() -> Cluster:
    """The ResourceManager has asked the TaskExecutor; its successor gets the answer and goes on."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1")
    while not cluster.said("task_executor.RequestSlot"):
        assert cluster.step()
    cluster.start_master()
    cluster.settle()
    return cluster


def a_task_executor_restarts_under_its_old_resource_id() -> Cluster:
    """Its tasks are still its own: they run again, nobody else is asked, and the job finishes."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1")
    cluster.settle()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


def a_cluster_shuts_down_with_a_running_job() -> Cluster:
    """The job is cancelled first, then the TaskExecutors leave, then the cluster ends."""
    cluster = Cluster()
    cluster.start_master()
    for resource_id in ("te-1", "te-2"):
        cluster.start_task_executor(resource_id)
    cluster.settle()
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.say("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="asked to"))
    cluster.settle()
    return cluster


SCENARIOS: dict[str, Callable[[], Cluster]] = {
    story.__name__: story
    for story in (
        a_job_finishes,
        the_task_executor_is_there_first,
        a_job_is_cancelled_during_its_deployment,
        a_job_wants_more_slots_than_there_are,
        a_job_id_is_taken,
        a_program_is_built_and_another_fails_to,
        a_task_fails,
        the_master_crashes_with_a_slot_request_in_flight,
        a_task_executor_restarts_under_its_old_resource_id,
        a_cluster_shuts_down_with_a_running_job,
    )
}


def walk(seed: int, steps: int = 60) -> World:
    """A cluster that goes its way at random: the same way for the same seed."""
    draw = random.Random(seed)
    world = World()
    world.start_master()
    for resource_id in ("te-1", "te-2"):
        world.start_worker(resource_id, 2)
    for _ in range(steps):
        job_id = draw.choice(("j1", "j2", "j3", "j4"))
        resource_id = draw.choice(("te-1", "te-2", "te-3"))
        process = draw.choice(world.processes() or [None])
        match draw.choice(("submit",) * 3 + ("cancel", "end", "read", "master", "worker") + ("turn",) * 8):
            case "submit":
                job_graph = graph(draw.randint(1, 3))
                world.request(
                    dispatcher.SubmitJob(job_id=f"{job_id}-{draw.randint(0, 9)}", job_graph=job_graph)
                )
            case "cancel":
                world.request(dispatcher.CancelJob(job_id=f"{job_id}-{draw.randint(0, 9)}"))
            case "end" if process is not None and process.running:
                state = draw.choice((ExecutionState.FINISHED, ExecutionState.FAILED))
                process.report(draw.choice(sorted(process.running)), state)
            case "read" if process is not None:
                process.fold(draw.randint(1, 4))
            case "master":
                world.start_master()
            case "worker":
                world.start_worker(resource_id, draw.randint(1, 2))
            case _:
                world.turn()
    if draw.random() < 0.5:
        world.request(dispatcher.ShutDownCluster(reason="the walk is over"))
    world.settle()
    return world


_ID = re.compile(r"\b[0-9a-f]{32}\b")
_TOLD = {
    "job_graph",
    "hardware",
    "resource_profile",
    "default_slot_profile",
    "data_port",
    "address",
    "session",
}


def transcript(records: Sequence[Record]) -> str:
    """The conversation, a line an event: offset, sender, recipient, fields, cause; derived ids have short names."""
    names: dict[str, str] = {}
    lines = []
    for record in records:
        header, body = record.header, record.body
        fields = "".join(
            f" {field.name}={_short(value)}"
            for field in msgspec.structs.fields(body)
            if field.name not in _TOLD and (value := getattr(body, field.name)) is not None
        )
        cause = "" if header.cause is None else f" <- {header.cause}"
        event = body.AVRO_NAME.rpartition(".")[2]
        line = f"{record.offset:>3} {header.sender} -> {header.recipient}: {event}{fields}{cause}"
        lines.append(_ID.sub(lambda match: names.setdefault(match[0], f"id{len(names) + 1}"), line))
    return "\n".join(lines) + "\n"


def _short(value: object) -> str:
    match value:
        case str():
            return f"{value!r}" if " " in value else value
        case JobGraph(name=name):
            return name
        case tuple():
            return f"[{', '.join(_short(each) for each in value)}]"
        case msgspec.Struct():
            told = ((each.name, getattr(value, each.name)) for each in msgspec.structs.fields(value))
            return (
                "{" + " ".join(f"{k}={_short(v)}" for k, v in told if k not in _TOLD and v is not None) + "}"
            )
        case _:
            return str(value)


def main() -> None:
    """Everything that is said in every scenario and some walks, down to the ids."""
    for name, story in SCENARIOS.items():
        print(name, *story().log, sep="\n")
    for seed in range(6):
        print(seed, *walk(seed).log, sep="\n")


if __name__ == "__main__":
    main()
