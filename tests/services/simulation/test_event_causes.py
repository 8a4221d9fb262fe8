"""Simulated shells name the same causes as real ones: a real TaskExecutor's shell runs beside the simulated one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tailrace.pipelines.runtime.common.deployment import CheckpointTrigger, VertexDeployment
from tailrace.schemas import client, dispatcher, job_master, resource_manager
from tailrace.schemas.event import Record
from tailrace.schemas.everyone import LeaderElected
from tailrace.schemas.types import ExecutionState, Header
from tailrace.services.configuration import Configuration
from tailrace.services.core.replica import Replica
from tailrace.services.core.role import CLIENT, TASK_EXECUTOR, OutgoingEvent, instance_of, kind_of
from tailrace.services.simulation.fake_effects import NoOpTaskExecutorEffects
from tailrace.services.task_executor.shell import TaskExecutorShell

from ..simulated_cluster.cluster import new_replica
from .what_if.history_builder import HistoryBuilder, any_history

OF_TASKS = (
    job_master.UpdateTaskExecutionState | job_master.AcknowledgeCheckpoint | job_master.DeclineCheckpoint
)
OBSERVED = resource_manager.WorkerLost | resource_manager.DisconnectTaskManager | LeaderElected
"""Began with what somebody saw in the world."""


class Idle:
    """A runtime that only records."""

    def jvm_heap_bytes(self) -> int:
        return 1 << 29

    def deploy(self, deployment: VertexDeployment) -> None: ...

    def cancel(self, execution_attempt_id: str) -> None: ...

    def trigger_checkpoint(
        self, execution_attempt_ids: Sequence[str], checkpoint: CheckpointTrigger
    ) -> None: ...

    def confirm_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None: ...

    def abort_checkpoint(self, execution_attempt_ids: Sequence[str], checkpoint_id: int) -> None: ...

    def accumulators(self) -> Mapping[str, Mapping[str, float]]:
        return {}

    def close(self) -> None: ...


class RealShells:
    """The real shells of all TaskExecutors of a log: they repeat each event about tasks of a simulated shell."""

    def __init__(self) -> None:
        self._shells: dict[str, TaskExecutorShell] = {}
        self.sent: list[OutgoingEvent] = []

    def begin(self, role_address: str) -> None:
        shell = TaskExecutorShell(lambda _, owed: self.sent.append(owed), role_address, "studio")
        name = instance_of(role_address)
        shell.register(Idle(), Configuration({}), resource_id=name, process_address="here")
        self._shells[role_address] = shell

    def perform(self, role_address: str, replica: Replica) -> None:
        if role_address in self._shells:
            state = replica.states[role_address]
            self._shells[role_address].perform(
                role_address, replica.role(role_address).instructions(state), state
            )

    def send(self, record: Record) -> OutgoingEvent:
        shell, body = self._shells[record.header.sender], record.body
        match body:
            case job_master.UpdateTaskExecutionState():
                shell.reported(
                    body.execution_attempt_id, body.execution_state, body.failure, body.accumulators,
                    body.progress_lost,
                )  # fmt: skip
            case job_master.AcknowledgeCheckpoint():
                for part in body.acknowledgements:
                    shell.acknowledged(
                        part.execution_attempt_id, body.checkpoint_id, part.subtask_state, part.metrics
                    )
            case job_master.DeclineCheckpoint():
                shell.declined(body.execution_attempt_id, body.checkpoint_id, body.reason)
            case _:
                raise TypeError(f"{body} is said of no task")
        return self.sent[-1]


def checked(records: Sequence[Record]) -> int:
    """Returns how many events about tasks have the causes of real shells."""
    replica, shells, count = new_replica(on_illegal=lambda *_: None), RealShells(), 0
    for record in records:
        body = record.body
        if isinstance(body, OF_TASKS) and not record.header.decided:
            assert shells.send(record) == OutgoingEvent(record.header.recipient, body, record.header.cause)
            count += 1
        changed = replica.apply(record)
        if isinstance(body, LeaderElected) and kind_of(body.role) == TASK_EXECUTOR:
            shells.begin(body.role)
        for item in changed:
            shells.perform(item, replica)
    return count


@pytest.mark.parametrize("seed", range(12))
def test_event_of_simulated_task_has_cause_of_real_task_executor(seed: int) -> None:
    assert checked(any_history(seed).records)


def test_task_that_meets_barrier_has_submission_as_cause_and_triggered_task_has_trigger() -> None:
    studio = HistoryBuilder({"execution.checkpointing.interval": "3 s"})
    studio.start_workers("te-1", "te-2", "te-3", slots=1)
    studio.schedule_at(1, studio.submit, "j1", 3)
    studio.schedule_at(20, studio.request, dispatcher.CancelJob(job_id="j1"))
    records = studio.run(30).records
    assert checked(records)
    acknowledged = [record for record in records if isinstance(record.body, job_master.AcknowledgeCheckpoint)]
    causes = {records[record.header.cause or 0].body.AVRO_NAME.rpartition(".")[2] for record in acknowledged}
    assert causes == {"TriggerCheckpoint", "SubmitTask"}
    ends = [
        records[record.header.cause or 0].body.AVRO_NAME.rpartition(".")[2]
        for record in records
        if isinstance(record.body, job_master.UpdateTaskExecutionState)
        and record.body.execution_state is ExecutionState.CANCELED
    ]
    assert ends
    assert set(ends) == {"CancelTask"}


@pytest.mark.parametrize("seed", range(6))
def test_event_of_shell_has_cause_unless_it_is_observation(seed: int) -> None:
    for record in any_history(seed).records:
        if kind_of(record.header.sender) != CLIENT and not isinstance(record.body, OBSERVED):
            assert record.header.cause is not None, record


def test_disposal_of_savepoint_has_request_as_cause() -> None:
    studio = HistoryBuilder()
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 1)
    studio.schedule_at(5, studio.request, dispatcher.DisposeSavepoint(path="memory://savepoints/none"))
    records = studio.run(10).records
    request, disposed, answered = (
        next(record for record in records if isinstance(record.body, kind))
        for kind in (dispatcher.DisposeSavepoint, dispatcher.SavepointDisposed, client.SavepointDisposed)
    )
    # As services.dispatcher.shell: the request, which the event names as well.
    assert disposed.header.cause == disposed.body.request == request.offset  # type: ignore[attr-defined]
    assert answered.header.cause == request.offset


def test_hosted_tasks_name_same_causes() -> None:
    """The shell that real hosts run repeats beside a real one what the TaskExecutors of a history did."""
    records = any_history(1).records
    replica, shells, events = (
        new_replica(on_illegal=lambda *_: None),
        RealShells(),
        list[tuple[str, OutgoingEvent]](),
    )
    hosted = NoOpTaskExecutorEffects(lambda address, owed: events.append((address, owed)))
    compared = 0
    for record in records:
        changed = replica.apply(record)
        if isinstance(record.body, LeaderElected) and kind_of(record.body.role) == TASK_EXECUTOR:
            hosted.retire(record.body.role)
            shells.begin(record.body.role)
        for item in changed:
            if kind_of(item) != TASK_EXECUTOR:
                continue
            shells.perform(item, replica)
            events.clear()
            hosted.perform(item, replica.role(item).instructions(replica.states[item]), replica.states[item])
            for address, owed in events:
                header = Header(event_id="", time=0, sender=address, sender_epoch=0, recipient=owed.recipient)
                event = shells.send(Record(0, header, owed.body))
                assert event == owed
                compared += 1
    assert compared > 20
