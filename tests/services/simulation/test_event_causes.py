"""Simulated shells name the causes that real ones name: a real TaskExecutor's shell is asked beside the simulated."""

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
    """A runtime that only takes notice."""

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
    """Of all TaskExecutors of a log: whatever a simulated one said of its tasks, a real one says again."""

    def __init__(self) -> None:
        self._shells: dict[str, TaskExecutorShell] = {}
        self.said: list[OutgoingEvent] = []

    def begin(self, role_address: str) -> None:
        shell = TaskExecutorShell(lambda _, owed: self.said.append(owed), role_address, "studio")
        name = instance_of(role_address)
        shell.register(Idle(), Configuration({}), resource_id=name, process_address="here")
        self._shells[role_address] = shell

    def perform(self, role_address: str, replica: Replica) -> None:
        if role_address in self._shells:
            state = replica.states[role_address]
            self._shells[role_address].perform(
                role_address, replica.role(role_address).instructions(state), state
            )

    def say(self, record: Record) -> OutgoingEvent:
        shell, body = self._shells[record.header.sender], record.body
        match body:
            case job_master.UpdateTaskExecutionState():
                shell.reported(
                    body.execution_attempt_id, body.execution_state, body.failure, body.accumulators,
                    body.progress_lost,
                )  # fmt: skip
            case job_master.AcknowledgeCheckpoint():
                shell.acknowledged(
                    body.execution_attempt_id, body.checkpoint_id, body.subtask_state, body.metrics
                )
            case job_master.DeclineCheckpoint():
                shell.declined(body.execution_attempt_id, body.checkpoint_id, body.reason)
            case _:
                raise TypeError(f"{body} is said of no task")
        return self.said[-1]


def checked(records: Sequence[Record]) -> int:
    """How many words about tasks were said as real shells say them."""
    replica, shells, count = new_replica(on_illegal=lambda *_: None), RealShells(), 0
    for record in records:
        body = record.body
        if isinstance(body, OF_TASKS) and not record.header.decided:
            assert shells.say(record) == OutgoingEvent(record.header.recipient, body, record.header.cause)
            count += 1
        changed = replica.apply(record)
        if isinstance(body, LeaderElected) and kind_of(body.role) == TASK_EXECUTOR:
            shells.begin(body.role)
        for each in changed:
            shells.perform(each, replica)
    return count


@pytest.mark.parametrize("seed", range(12))
def test_what_tasks_say_is_caused_by_what_a_real_task_executor_names(seed: int) -> None:
    assert checked(any_history(seed).records)


def test_tasks_that_meet_a_barrier_name_what_they_run_by_and_those_that_are_told_what_told_them() -> None:
    studio = HistoryBuilder({"execution.checkpointing.interval": "3 s"})
    studio.start_workers("te-1", "te-2", "te-3", slots=1)
    studio.schedule_at(1, studio.submit, "j1", 3)
    studio.schedule_at(20, studio.request, dispatcher.CancelJob(job_id="j1"))
    records = studio.run(30).records
    assert checked(records)
    acknowledged = [each for each in records if isinstance(each.body, job_master.AcknowledgeCheckpoint)]
    causes = {records[each.header.cause or 0].body.AVRO_NAME.rpartition(".")[2] for each in acknowledged}
    assert causes == {"TriggerCheckpoint", "SubmitTask"}
    ends = [
        records[each.header.cause or 0].body.AVRO_NAME.rpartition(".")[2]
        for each in records
        if isinstance(each.body, job_master.UpdateTaskExecutionState)
        and each.body.execution_state is ExecutionState.CANCELED
    ]
    assert ends
    assert set(ends) == {"CancelTask"}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_shells_say_has_a_cause_unless_they_saw_it_happen(seed: int) -> None:
    for record in any_history(seed).records:
        if kind_of(record.header.sender) != CLIENT and not isinstance(record.body, OBSERVED):
            assert record.header.cause is not None, record


def test_a_savepoint_is_disposed_of_because_somebody_asked() -> None:
    studio = HistoryBuilder()
    studio.start_workers("te-1")
    studio.schedule_at(1, studio.submit, "j1", 1)
    studio.schedule_at(5, studio.request, dispatcher.DisposeSavepoint(path="memory://savepoints/none"))
    records = studio.run(10).records
    request, disposed, answered = (
        next(each for each in records if isinstance(each.body, kind))
        for kind in (dispatcher.DisposeSavepoint, dispatcher.SavepointDisposed, client.SavepointDisposed)
    )
    # As services.dispatcher.shell: the request, which the event names as well.
    assert disposed.header.cause == disposed.body.request == request.offset  # type: ignore[attr-defined]
    assert answered.header.cause == request.offset


def test_hosted_tasks_name_the_same_causes() -> None:
    """What a history had its TaskExecutors do, done by the shell that real hosts run beside a real one."""
    records = any_history(1).records
    replica, shells, said = (
        new_replica(on_illegal=lambda *_: None),
        RealShells(),
        list[tuple[str, OutgoingEvent]](),
    )
    hosted = NoOpTaskExecutorEffects(lambda address, owed: said.append((address, owed)))
    compared = 0
    for record in records:
        changed = replica.apply(record)
        if isinstance(record.body, LeaderElected) and kind_of(record.body.role) == TASK_EXECUTOR:
            hosted.retire(record.body.role)
            shells.begin(record.body.role)
        for each in changed:
            if kind_of(each) != TASK_EXECUTOR:
                continue
            shells.perform(each, replica)
            said.clear()
            hosted.perform(each, replica.role(each).instructions(replica.states[each]), replica.states[each])
            for address, owed in said:
                header = Header(event_id="", time=0, sender=address, sender_epoch=0, recipient=owed.recipient)
                heard = shells.say(Record(0, header, owed.body))
                assert heard == owed
                compared += 1
    assert compared > 20
