"""Scenarios of a cluster in the simulation; `transcripts/` has the events of each.

`python -m tests.services.scenarios` prints all events in full. The output must not depend on the order of a hash table.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence

import msgspec
import structlog

from tailrace.schemas import dispatcher
from tailrace.schemas.event import Record
from tailrace.schemas.types import EntryPoint, ExecutionState, JobGraph, PartitionOffset, QuarantineMode
from tailrace.services.core.leadership import LeadershipState

from .async_simulator import AsyncSimulator
from .scenarios_checkpoints import STORIES
from .scenarios_masters import STORIES_OF_MASTERS
from .simulated_cluster.chaos import Chaos
from .simulated_cluster.cluster import Cluster, graph, start_cluster
from .simulated_cluster.jobs import co_located, with_options


def a_job_finishes() -> Cluster:
    """The shortest scenario: two tasks in one slot."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


def the_task_executor_is_there_first() -> Cluster:
    """The TaskExecutor starts first: its registration waits in the log until a ResourceManager leads."""
    cluster = Cluster()
    cluster.start_task_executor("te-1", slots=2)
    cluster.settle()
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.start_master()
    cluster.settle()
    return cluster


def a_job_is_cancelled_during_its_deployment() -> Cluster:
    """A job is cancelled while it is deployed: its master has submitted one task and dies; the next one submits the
    other and cancels both."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    while not cluster.events_of("ChannelsCreated"):
        assert cluster.step()
    first, _ = cluster.owed("job_master/j1")
    decided_at = cluster.replica.offset
    cluster.send("job_master/j1", first.recipient, first.body, cause=first.cause, decided_at=decided_at)
    cluster.start_master()
    cluster.send("client/test", "dispatcher", dispatcher.CancelJob(job_id="j1"))
    cluster.settle()
    return cluster


def a_job_wants_more_slots_than_there_are() -> Cluster:
    """A job needs more slots than the cluster has: it waits for them, then fails and frees the slots that it got."""
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("j1", graph(3))
    cluster.settle()
    cluster.tick(31)
    return cluster


def a_job_id_is_taken() -> Cluster:
    """The second submission of a job id is rejected; the first job continues."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    cluster.settle()
    cluster.submit("j1", client="client/second")
    cluster.settle()
    return cluster


def a_program_is_built_and_another_fails_to() -> Cluster:
    """The Dispatcher's shell builds programs: one succeeds, one fails."""
    cluster = start_cluster("te-1")
    for job_id, target in (("j1", "program:main"), ("j2", "program:fails")):
        entry_point = EntryPoint(target=target, arguments=())
        body = dispatcher.SubmitJob(job_id=job_id, entry_point=entry_point)
        offset = cluster.send("client/test", "dispatcher", body)
        if job_id == "j2":
            cluster.obeyed.add(("dispatcher", f"build/j2/{offset}"))
            cluster.settle()
            failed = dispatcher.JobGraphFailed(job_id=job_id, reason="program:fails raised ValueError")
            cluster.send("dispatcher", "dispatcher", failed, cause=offset)
        cluster.settle()
    return cluster


def first_task(cluster: Cluster, resource_id: str) -> str:
    """Returns the first submitted Execution of a TaskExecutor."""
    tasks = cluster.replica.states[f"task_executor/{resource_id}"].tasks
    return min(tasks, key=lambda item: (tasks[item].cause, tasks[item].subtask_index))  # type: ignore[no-any-return]


def a_task_fails() -> Cluster:
    """A task fails and the job has no restart strategy: its other tasks are cancelled first, then its slots are
    freed."""
    cluster = start_cluster("te-1", slots=2)
    cluster.submit("j1", with_options(graph(2), {"restart-strategy.type": "none"}))
    cluster.settle()
    cluster.report(
        "task_executor/te-1",
        first_task(cluster, "te-1"),
        ExecutionState.FAILED,
        "ZeroDivisionError at job.py:3",
    )
    cluster.settle()
    return cluster


def the_master_crashes_with_a_slot_request_in_flight() -> Cluster:
    """The master crashes after the ResourceManager has sent RequestSlot; its successor receives the answer and
    continues."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    while not cluster.events_of("task_executor.RequestSlot"):
        assert cluster.step()
    cluster.start_master()
    cluster.settle()
    return cluster


def a_task_executor_restarts_under_its_old_resource_id() -> Cluster:
    """A TaskExecutor restarts with its old resource id: it keeps its tasks, which run again; no other slot is
    requested, and the job finishes."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    cluster.settle()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


def a_cluster_shuts_down_with_a_running_job() -> Cluster:
    """The cluster shuts down: the job is cancelled first, then the TaskExecutors disconnect, then the cluster ends."""
    cluster = start_cluster("te-1", "te-2")
    cluster.submit("j1", graph(2))
    cluster.settle()
    cluster.send("client/test", "dispatcher", dispatcher.ShutDownCluster(reason="asked to"))
    cluster.settle()
    return cluster


def a_slot_is_offered_while_its_request_is_cancelled() -> Cluster:
    """An offer of a slot and the cancellation of its request cross: the JobMaster rejects the slot, the TaskExecutor
    frees it."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    while not cluster.events_of("task_executor.JobManagerRegistrationSuccess"):
        assert cluster.step()
    offers = cluster.owed("task_executor/te-1")
    cluster.send("client/test", "dispatcher", dispatcher.CancelJob(job_id="j1"))
    while not cluster.events_of("CancelSlotRequest"):
        assert cluster.step(but="task_executor/te-1")
    for offer in offers:
        cluster.send("task_executor/te-1", offer.recipient, offer.body, cause=offer.cause)
    cluster.settle()
    return cluster


def a_task_executor_is_lost_while_a_job_is_deployed() -> Cluster:
    """A TaskExecutor is killed before all tasks are submitted: the job continues in slots of another one, with new
    attempts."""
    cluster = start_cluster("te-1", "te-2")
    cluster.submit("j1")
    while not cluster.events_of("SubmitTask"):
        assert cluster.step()
    lost = cluster.events_of("SubmitTask")[0].header.recipient.partition("/")[2]
    cluster.kill(lost)
    cluster.settle()
    cluster.lose(lost, "its process has ended")
    cluster.settle()
    cluster.tick(2)
    return cluster


def two_jobs_compete_for_the_last_slot() -> Cluster:
    """Two jobs compete for the last slot: the first request gets it; the second waits until the first job has
    finished."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    cluster.submit("j2")
    cluster.settle()
    cluster.tick(11)
    cluster.finish_all()
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


def co_located_subtasks_share_a_slot() -> Cluster:
    """Middle and sink share each slot, also after the slot of one pair is lost."""
    cluster = start_cluster("te-1", "te-2", "te-3")
    cluster.submit("j1", co_located(2))
    cluster.settle()
    cluster.kill("te-2")
    cluster.lose("te-2", "its process has ended")
    cluster.settle()
    cluster.tick(2)
    return cluster


def one_task_fails_and_is_restarted_alone() -> Cluster:
    """A failed task is restarted alone after the delay of the restart strategy, in the same slot; its peers
    continue."""
    cluster = start_cluster("te-1", slots=2)
    restarts = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 s"}
    cluster.submit("j1", with_options(graph(2), restarts))
    cluster.settle()
    cluster.report("task_executor/te-1", first_task(cluster, "te-1"), ExecutionState.FAILED, "it broke")
    cluster.settle()
    cluster.tick(2)
    cluster.finish_all()
    cluster.settle()
    return cluster


def what_attempts_have_counted_adds_up() -> Cluster:
    """A failed attempt reports what it has committed and the next one continues from there; the client gets the
    totals."""
    cluster = start_cluster("te-1", slots=2)
    restarts = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 s"}
    cluster.submit("j1", with_options(graph(2), restarts))
    cluster.settle()
    te, first = "task_executor/te-1", first_task(cluster, "te-1")
    cluster.report(te, first, ExecutionState.FAILED, "it broke", {"bad lines": 2})
    cluster.settle()
    cluster.tick(2)
    tasks = cluster.replica.states[te].tasks
    for attempt, task in sorted(tasks.items(), key=lambda pair: (pair[1].cause, pair[1].subtask_index)):
        counts = {"bad lines": 2.0 + task.attempt_number, "words": 10.5} if task.subtask_index == 0 else {}
        cluster.report(te, attempt, ExecutionState.FINISHED, None, counts)
    cluster.settle()
    return cluster


def a_cluster_is_suspended_and_its_job_resumed() -> Cluster:
    """The job is suspended with its cluster, and resumed by the next leader: attempt numbers continue."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    cluster.settle()
    body = dispatcher.ShutDownCluster(reason="maintenance", suspend=True)
    cluster.send("client/test", "dispatcher", body)
    cluster.settle()
    cluster.start_master()
    cluster.settle()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    return cluster


def a_worker_is_started_and_released_when_it_is_idle() -> Cluster:
    """Active mode: the ResourceManager starts a worker for a request, and stops it when it is idle."""
    cluster = Cluster(configuration={"resourcemanager.mode": "active", "taskmanager.numberOfTaskSlots": "1"})
    cluster.start_master()
    cluster.settle()
    cluster.submit("j1")
    cluster.settle()
    cluster.finish_all()
    cluster.settle()
    cluster.tick(31)
    cluster.tick(31)
    return cluster


def a_task_executor_is_lost_and_lives() -> Cluster:
    """A TaskExecutor that is declared lost is alive: its late events are fenced; when it reads of its loss it stops
    its tasks and registers again."""
    cluster = start_cluster("te-1", "te-2")
    cluster.submit("j1")
    cluster.settle()
    zombie = cluster.events_of("SubmitTask")[0].header.recipient.partition("/")[2]
    cluster.kill(zombie)
    cluster.lose(zombie, "no heartbeat for 50 s", exited=False)
    cluster.settle()
    cluster.tick(2)
    cluster.dead.clear()
    cluster.settle()
    return cluster


def a_task_executor_is_quarantined_and_its_tasks_move() -> Cluster:
    """A TaskExecutor is quarantined by hand: a job moves, the next one stays until a slot is free, and the next
    master knows of it. Another host is drained, and the first TaskExecutor is released."""
    cluster = start_cluster("te-1", slots=2)
    for job_id in ("j1", "j2"):
        cluster.submit(job_id)
        cluster.settle()
    cluster.start_task_executor("te-2", 1)
    cluster.settle()
    cluster.send("client/test", "dispatcher", _quarantine(QuarantineMode.QUARANTINED, "te-1", None))
    cluster.settle()
    cluster.start_master()
    cluster.settle()
    cluster.start_task_executor("te-3", 2)
    cluster.settle()
    cluster.send("client/test", "dispatcher", _quarantine(QuarantineMode.DRAINING, None, "worker-7"))
    cluster.send("client/test", "dispatcher", _quarantine(QuarantineMode.RELEASED, "te-1", None))
    cluster.settle()
    cluster.send("client/test", "dispatcher", _quarantine(QuarantineMode.DRAINING, "te-2", None))
    cluster.settle()
    return cluster


def options_of_a_job_change_while_it_runs() -> Cluster:
    """An option of a job changes and gets its first value again; one that can't change is refused."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    cluster.settle()
    interval = "execution.checkpointing.interval"
    for configuration, removed in (
        ({interval: "10 s", "restart-strategy.type": "none"}, ()),
        ({}, (interval,)),
        ({"state.backend.type": "rocksdb"}, ()),
    ):
        body = dispatcher.ConfigureJob(job_id="j1", configuration=configuration, removed=removed)
        cluster.send("client/test", "dispatcher", body)
        cluster.settle()
    cluster.start_master()
    cluster.settle()
    te = "task_executor/te-1"
    cluster.report(te, first_task(cluster, "te-1"), ExecutionState.FAILED, "it broke", {})
    cluster.settle()
    return cluster


def offsets_of_a_paused_job_are_reset() -> Cluster:
    """A partition of a paused job is reset twice, which is refused while it runs. The next leader resumes it."""
    cluster = start_cluster("te-1")
    cluster.submit("j1")
    cluster.settle()
    source = cluster.replica.states["job_master/j1"].graph.vertices[0].operators[0].operator_id

    def reset(offset: int) -> None:
        place = PartitionOffset(operator_id=source, topic="clicks", partition=0, offset=offset)
        cluster.send("client/test", "dispatcher", dispatcher.ResetOffsets(job_id="j1", offsets=(place,)))
        cluster.settle()

    reset(3)
    cluster.send("client/test", "dispatcher", dispatcher.PauseJob(job_id="j1"))
    cluster.settle()
    reset(7)
    reset(5)
    cluster.start_master()
    cluster.settle()
    cluster.send("client/test", "dispatcher", dispatcher.ResumeJob(job_id="j1"))
    cluster.settle()
    return cluster


def _quarantine(mode: QuarantineMode, resource_id: str | None, host: str | None) -> dispatcher.SetQuarantine:
    return dispatcher.SetQuarantine(resource_id=resource_id, host=host, mode=mode, reason="disk errors")


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
        a_slot_is_offered_while_its_request_is_cancelled,
        a_task_executor_is_lost_while_a_job_is_deployed,
        two_jobs_compete_for_the_last_slot,
        co_located_subtasks_share_a_slot,
        one_task_fails_and_is_restarted_alone,
        what_attempts_have_counted_adds_up,
        a_cluster_is_suspended_and_its_job_resumed,
        a_worker_is_started_and_released_when_it_is_idle,
        a_task_executor_is_lost_and_lives,
        a_task_executor_is_quarantined_and_its_tasks_move,
        options_of_a_job_change_while_it_runs,
        offsets_of_a_paused_job_are_reset,
        *STORIES,
        *STORIES_OF_MASTERS,
    )
}


def walk(seed: int) -> AsyncSimulator:
    """Runs a random cluster; the same seed gives the same run."""
    chaos = Chaos(random.Random(seed))
    chaos.run()
    return chaos.world


_ID = re.compile(r"\b[0-9a-f]{32}\b")
_UNTOLD = {
    "metrics",
    "process_mark",
    "job_graph",
    "hardware",
    "resource_profile",
    "default_slot_profile",
    "data_port",
    "address",
    "session",
    "subtask_state",
}
_MOSTLY_DEFAULT = {
    "accumulators",
    "allow_non_restored_state",
    "changelog_offset",
    "checkpoints_over",
    "drain",
    "drains",
    "elected_by",
    "endpoints",
    "finished",
    "full",
    "generation",
    "in_flight",
    "offset_resets",
    "operators",
    "passed_over",
    "progress_lost",
    "requests",
    "size",
    "stops",
}
"""Fields that are left out where they are as in most events."""


def transcript(records: Sequence[Record]) -> str:
    """Formats the log, one line per event: offset, sender, recipient, fields, cause; derived ids have short names.

    Events that readers ignore are in brackets, with their epoch.
    """
    names: dict[str, str] = {}
    lines, leadership = [], LeadershipState()
    for record in records:
        header, body = record.header, record.body
        fields = "".join(f" {name}={_short(value)}" for name, value in _nonempty_fields(body))
        cause = "" if header.cause is None else f" <- {header.cause}"
        event = body.AVRO_NAME.rpartition(".")[2]
        output = f"{header.sender} -> {header.recipient}: {event}{fields}{cause}"
        if not leadership.accepts(record):
            output = f"(epoch {header.sender_epoch}, ignored: {output})"
        leadership = leadership.evolve(record)
        line = f"{record.offset:>3} {output}"
        lines.append(_ID.sub(lambda match: names.setdefault(match[0], f"id{len(names) + 1}"), line))
    return "\n".join(lines) + "\n"


def _nonempty_fields(struct: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """Returns the fields that are not empty."""
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        usual = field.name in _MOSTLY_DEFAULT and (not value or value == field.default)
        if field.name not in _UNTOLD and value is not None and not usual:
            yield field.name, value


def _short(value: object) -> str:
    match value:
        case str():
            return f"{value!r}" if " " in value else value
        case JobGraph(name=name):
            return name
        case tuple():
            return f"[{', '.join(_short(item) for item in value)}]"
        case msgspec.Struct():
            return "{" + " ".join(f"{name}={_short(field)}" for name, field in _nonempty_fields(value)) + "}"
        case _:
            return str(value)


def main() -> None:
    """Prints all events of every scenario and of some random runs, with their ids."""
    # Warnings tell the time.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    for name, story in SCENARIOS.items():
        print(name, *story().log, sep="\n")
    for seed in range(6):
        print(seed, *walk(seed).log, sep="\n")


if __name__ == "__main__":
    main()
