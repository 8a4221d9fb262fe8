"""Scenarios of checkpoints; see `scenarios`."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.types import ExecutionState
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES
from tailrace.services.simulation.task_events import acknowledgement_of

from .simulated_cluster.cluster import Cluster, graph, start_cluster
from .simulated_cluster.jobs import with_options

EVERY_SECOND = {"execution.checkpointing.interval": "1 s", **DIRECTORIES}


def acknowledge(attempt: str, checkpoint_id: int) -> job_master.AcknowledgeCheckpoint:
    return job_master.AcknowledgeCheckpoint(
        job_id="j1", checkpoint_id=checkpoint_id, acknowledgements=(acknowledgement_of(attempt),)
    )


def _running(settings: dict[str, str], savepoint_path: str | None = None) -> Cluster:
    """Returns a cluster where job j1 runs two tasks in one slot of te-1."""
    cluster = start_cluster("te-1")
    cluster.submit("j1", with_options(graph(), settings), savepoint_path=savepoint_path)
    cluster.settle()
    return cluster


def _tasks(cluster: Cluster) -> list[str]:
    """Returns the Executions of te-1, in the order of their submission."""
    tasks = cluster.replica.states["task_executor/te-1"].tasks
    return sorted(tasks, key=lambda item: (tasks[item].cause, tasks[item].subtask_index))


def a_checkpoint_is_complete_and_the_next_takes_its_place() -> Cluster:
    """The source gets TriggerCheckpoint, both tasks acknowledge, the metadata is written; then the older checkpoint
    is discarded."""
    cluster = _running(EVERY_SECOND)
    cluster.tick(1)
    cluster.tick(1)
    cluster.finish_all()
    cluster.settle()
    return cluster


def a_checkpoint_is_declined() -> Cluster:
    """One task has acknowledged the checkpoint, the other declines it: it is aborted, and its files are deleted."""
    cluster = _running(EVERY_SECOND)
    source, window = _tasks(cluster)
    cluster.answers = False
    cluster.tick(1)
    te, jm = "task_executor/te-1", "job_master/j1"
    cluster.send(te, jm, acknowledge(source, 1))
    declined = job_master.DeclineCheckpoint(
        job_id="j1", execution_attempt_id=window, checkpoint_id=1, reason="its state can't be written"
    )
    cluster.send(te, jm, declined)
    cluster.settle()
    return cluster


def a_checkpoint_expires() -> Cluster:
    """A task does not acknowledge before the checkpoint expires; its late acknowledgement changes nothing."""
    cluster = _running({**EVERY_SECOND, "execution.checkpointing.timeout": "5 s"})
    source, window = _tasks(cluster)
    cluster.answers = False
    cluster.tick(1)
    cluster.send("task_executor/te-1", "job_master/j1", acknowledge(source, 1))
    cluster.tick(5)
    cluster.send("task_executor/te-1", "job_master/j1", acknowledge(window, 1))
    cluster.settle()
    return cluster


def a_savepoint_is_taken() -> Cluster:
    """A client requests a savepoint, and gets its location."""
    cluster = _running(DIRECTORIES)
    body = dispatcher.TriggerSavepoint(job_id="j1", directory="memory://elsewhere")
    cluster.send("client/test", "dispatcher", body)
    cluster.settle()
    return cluster


def a_job_stops_with_a_savepoint() -> Cluster:
    """The tasks end when the savepoint is complete, and the job has finished."""
    cluster = _running(DIRECTORIES)
    cluster.send("client/test", "dispatcher", dispatcher.StopWithSavepoint(job_id="j1", drain=True))
    cluster.settle()
    return cluster


def a_job_goes_back_to_a_checkpoint() -> Cluster:
    """The progress of a task is lost: all tasks end, then all restart in the next generation from the checkpoint."""
    cluster = _running(EVERY_SECOND)
    cluster.tick(1)
    source, _ = _tasks(cluster)
    cluster.report(
        "task_executor/te-1", source, ExecutionState.FAILED, "its changelog is gone", progress_lost=True
    )
    cluster.settle()
    cluster.tick(2)
    return cluster


def a_task_goes_on_from_a_checkpoint() -> Cluster:
    """A task fails while a checkpoint is pending, which is aborted: the task restarts from the last complete one,
    its peer continues."""
    cluster = _running(EVERY_SECOND)
    cluster.tick(1)
    cluster.answers = False
    cluster.tick(1)
    source, _ = _tasks(cluster)
    cluster.report("task_executor/te-1", source, ExecutionState.FAILED, "it broke")
    cluster.settle()
    cluster.answers = True
    cluster.tick(2)
    return cluster


def a_job_begins_with_a_savepoint() -> Cluster:
    """A job starts from a savepoint of another job: its tasks are submitted after the savepoint was found intact."""
    cluster = a_job_stops_with_a_savepoint()
    (record,) = cluster.events_of("client.CheckpointSucceeded")
    uri = record.body.checkpoint.uri  # type: ignore[attr-defined]
    cluster.submit("j2", with_options(graph(), DIRECTORIES), savepoint_path=uri)
    cluster.settle()
    return cluster


def a_job_can_not_begin_with_a_savepoint_that_is_not_there() -> Cluster:
    """The savepoint does not exist: the job fails, and its client gets the reason."""
    return _running(DIRECTORIES, savepoint_path="memory://savepoints/none")


def the_master_changes_in_the_middle_of_a_checkpoint() -> Cluster:
    """The next master counts the acknowledgements that its predecessor received, and keeps every complete
    checkpoint."""
    cluster = _running(EVERY_SECOND)
    cluster.tick(1)
    cluster.answers = False
    cluster.tick(1)
    source, window = _tasks(cluster)
    cluster.send("task_executor/te-1", "job_master/j1", acknowledge(source, 2))
    cluster.start_master()
    cluster.settle()
    cluster.send("task_executor/te-1", "job_master/j1", acknowledge(window, 2))
    cluster.settle()
    return cluster


STORIES: tuple[Callable[[], Cluster], ...] = (
    a_checkpoint_is_complete_and_the_next_takes_its_place,
    a_checkpoint_is_declined,
    a_checkpoint_expires,
    a_savepoint_is_taken,
    a_job_stops_with_a_savepoint,
    a_job_goes_back_to_a_checkpoint,
    a_task_goes_on_from_a_checkpoint,
    a_job_begins_with_a_savepoint,
    a_job_can_not_begin_with_a_savepoint_that_is_not_there,
    the_master_changes_in_the_middle_of_a_checkpoint,
)
