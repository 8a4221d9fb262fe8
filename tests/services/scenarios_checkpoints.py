"""Stories of checkpoints; see `scenarios`."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.types import ExecutionState
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES
from tailrace.services.simulation.task_events import acknowledge_checkpoint_event

from .simulated_cluster.cluster import Cluster, graph
from .simulated_cluster.jobs import with_options

EVERY_SECOND = {"execution.checkpointing.interval": "1 s", **DIRECTORIES}


def _running(settings: dict[str, str], savepoint_path: str | None = None) -> Cluster:
    """Job j1 runs two tasks in one slot of te-1."""
    cluster = Cluster()
    cluster.start_master()
    cluster.start_task_executor("te-1")
    cluster.settle()
    cluster.submit("j1", with_options(graph(), settings), savepoint_path=savepoint_path)
    cluster.settle()
    return cluster


def _tasks(cluster: Cluster) -> list[str]:
    """Executions of te-1, in the order in which they were submitted."""
    tasks = cluster.replica.states["task_executor/te-1"].tasks
    return sorted(tasks, key=lambda each: tasks[each].cause)


def a_checkpoint_is_complete_and_the_next_takes_its_place() -> Cluster:
    """The source is told, both tasks acknowledge, the metadata is written; the older one is discarded after that."""
    cluster = _running(EVERY_SECOND)
    cluster.tick(1)
    cluster.tick(1)
    cluster.finish_all()
    cluster.settle()
    return cluster


def a_checkpoint_is_declined() -> Cluster:
    """One task has acknowledged it, the other can't contribute: it is aborted, and what was written goes."""
    cluster = _running(EVERY_SECOND)
    source, window = _tasks(cluster)
    cluster.answers = False
    cluster.tick(1)
    te, jm = "task_executor/te-1", "job_master/j1"
    cluster.say(te, jm, acknowledge_checkpoint_event("j1", source, 1).body)
    declined = job_master.DeclineCheckpoint(
        job_id="j1", execution_attempt_id=window, checkpoint_id=1, reason="its state can't be written"
    )
    cluster.say(te, jm, declined)
    cluster.settle()
    return cluster


def a_checkpoint_expires() -> Cluster:
    """A task is silent until the time is over; its acknowledgement comes too late, and changes nothing."""
    cluster = _running({**EVERY_SECOND, "execution.checkpointing.timeout": "5 s"})
    source, window = _tasks(cluster)
    cluster.answers = False
    cluster.tick(1)
    cluster.say("task_executor/te-1", "job_master/j1", acknowledge_checkpoint_event("j1", source, 1).body)
    cluster.tick(5)
    cluster.say("task_executor/te-1", "job_master/j1", acknowledge_checkpoint_event("j1", window, 1).body)
    cluster.settle()
    return cluster


def a_savepoint_is_taken() -> Cluster:
    """A client asks for it, and is told where it is."""
    cluster = _running(DIRECTORIES)
    body = dispatcher.TriggerSavepoint(job_id="j1", directory="memory://elsewhere")
    cluster.say("client/test", "dispatcher", body)
    cluster.settle()
    return cluster


def a_job_stops_with_a_savepoint() -> Cluster:
    """The tasks end when they hear that it is complete, and the job has finished."""
    cluster = _running(DIRECTORIES)
    cluster.say("client/test", "dispatcher", dispatcher.StopWithSavepoint(job_id="j1", drain=True))
    cluster.settle()
    return cluster


def a_job_goes_back_to_a_checkpoint() -> Cluster:
    """What a task was to go on from is gone: all tasks end, then all begin again, in the next generation."""
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
    """It fails while one is pending, which is aborted: it goes on with the last that is complete, its peer runs on."""
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
    """Another job's: its tasks are submitted when it was found whole."""
    cluster = a_job_stops_with_a_savepoint()
    (taken,) = cluster.said("client.CheckpointSucceeded")
    uri = taken.body.checkpoint.uri  # type: ignore[attr-defined]
    cluster.submit("j2", with_options(graph(), DIRECTORIES), savepoint_path=uri)
    cluster.settle()
    return cluster


def a_job_can_not_begin_with_a_savepoint_that_is_not_there() -> Cluster:
    """It fails, and its client is told why."""
    return _running(DIRECTORIES, savepoint_path="memory://savepoints/none")


def the_master_changes_in_the_middle_of_a_checkpoint() -> Cluster:
    """The next one counts the acknowledgements that its predecessor had heard, and loses nothing that was complete."""
    cluster = _running(EVERY_SECOND)
    cluster.tick(1)
    cluster.answers = False
    cluster.tick(1)
    source, window = _tasks(cluster)
    cluster.say("task_executor/te-1", "job_master/j1", acknowledge_checkpoint_event("j1", source, 2).body)
    cluster.start_master()
    cluster.settle()
    cluster.say("task_executor/te-1", "job_master/j1", acknowledge_checkpoint_event("j1", window, 2).body)
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
