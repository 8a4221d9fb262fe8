"""Histories with more faults that no role decides: storage, heartbeats, programs, masters."""

from __future__ import annotations

import random

from tailrace.schemas import dispatcher, job_master, resource_manager, task_executor
from tailrace.schemas.body import Body
from tailrace.schemas.types import CheckpointFailureReason, ExecutionState
from tailrace.services.core.role import (
    JOB_MASTER,
    RESOURCE_MANAGER,
    TASK_EXECUTOR,
    Instruction,
    OutgoingEvent,
    Time,
    address,
)
from tailrace.services.job_master.instructions import CreateChannels, FindCheckpoint, WriteMetadata
from tailrace.services.job_master.state import StartedJob
from tailrace.services.resource_manager.instructions import StartWorkerProcess
from tailrace.services.resource_manager.state import ResourceManagerState
from tailrace.services.task_executor.state import TaskExecutorState

from ...simulated_cluster.cluster import SECOND
from .history_builder import RECORDED_S, HistoryBuilder, MemoryHistory, Plan, any_plan


def faulty_history(seed: int) -> MemoryHistory:
    """Draws a history as `any_history`, with faults."""
    draw = random.Random(f"trouble/{seed}")
    often = draw.choice((0.0, 0.05, 0.3))

    def told(instruction: Instruction, now: Time) -> tuple[Time, Body | None] | None:
        return storage_fails(random.Random(f"{seed}/{instruction.key}"), instruction, often)

    plan = any_plan(seed, trouble=draw.choice((0.0, 0.1, 0.3)), told=told)
    for _ in range(draw.randint(1, 6)):
        draw.choice(
            (
                pauses,
                unheard_by_a_job,
                master_unheard,
                task_gone,
                slots_differ,
                report_differs,
                corrupt_checkpoint,
                savepoint,
                boot_fails,
            )
        )(plan, draw)
    if draw.random() < 0.3:
        masters_die(plan, draw)
    return plan.studio.run(RECORDED_S)


def storage_fails(
    draw: random.Random, instruction: Instruction, often: float
) -> tuple[Time, Body | None] | None:
    """Makes a shell answer as it does when storage or Kafka fails."""
    if draw.random() >= often:
        return None
    after = int(draw.uniform(0.01, 5) * SECOND)
    match instruction:
        case WriteMetadata(job_id=job_id, pending=pending):
            body = job_master.CheckpointAborted(
                job_id=job_id,
                checkpoint_id=pending.checkpoint_id,
                failure=CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE,
                reason="the disk is full",
            )
            return after, body
        case FindCheckpoint(job_id=job_id) if draw.random() < 0.3:
            return after, job_master.RestoreFailed(job_id=job_id, reason="it can't be read")
        case CreateChannels(job_id=job_id) if draw.random() < 0.2:
            return after, job_master.ChannelsFailed(job_id=job_id, reason="it is not allowed")
        case StartWorkerProcess(resource_id=resource_id):
            lost = resource_manager.WorkerLost(
                resource_id=resource_id, instance_id=None, exited=True, reason="it can't be started"
            )
            return after, lost
        case _:
            return after, None


def pauses(plan: Plan, draw: random.Random) -> None:
    """Stops the heartbeats of a TaskExecutor for a while, detected or not."""
    if plan.workers:
        studio, name, time = plan.studio, draw.choice(plan.workers), draw.uniform(5, 90)
        length = draw.uniform(1, 40)
        studio.schedule_at(time, studio.workers.pause, name)
        if draw.random() < 0.7:
            studio.schedule_at(time + length * 0.8, studio.workers.lose_heartbeats, name, "no heartbeat")
        studio.schedule_at(time + length, studio.workers.resume, name)


def unheard_by_a_job(plan: Plan, draw: random.Random) -> None:
    """Stops a TaskExecutor's heartbeats to a JobMaster."""
    number, job_id = draw.random(), draw.choice(plan.jobs)

    def happens() -> None:
        state = _job(plan.studio, job_id)
        if state is not None and state.connections:
            name = sorted(state.connections)[int(number * len(state.connections))]
            body = job_master.HeartbeatTimedOut(resource_id=name, reason="no heartbeat")
            _say(plan.studio, address(JOB_MASTER, job_id), body)

    plan.studio.schedule_at(draw.uniform(5, 90), happens)


def master_unheard(plan: Plan, draw: random.Random) -> None:
    """Stops a master's heartbeats to a TaskExecutor."""
    if plan.workers:
        own = address(TASK_EXECUTOR, draw.choice(plan.workers))
        peer = draw.choice((RESOURCE_MANAGER, *(address(JOB_MASTER, job) for job in plan.jobs)))
        body = task_executor.HeartbeatTimedOut(peer=peer, reason="no heartbeat")
        plan.studio.schedule_at(draw.uniform(5, 90), _say, plan.studio, own, body)


def task_gone(plan: Plan, draw: random.Random) -> None:
    """Ends a task without a report of its TaskExecutor."""
    number, job_id = draw.random(), draw.choice(plan.jobs)

    def happens() -> None:
        state = _job(plan.studio, job_id)
        running = [] if state is None else [
            execution for execution in state.executions.values() if execution.state is ExecutionState.RUNNING
        ]  # fmt: skip
        if running:
            result = sorted(running, key=lambda execution: execution.execution_attempt_id)[
                int(number * len(running))
            ]
            attempts = (result.execution_attempt_id,)
            plan.studio.attempts.lose(attempts)
            body = job_master.TasksContradicted(
                resource_id=result.resource_id or "",
                execution_attempt_ids=attempts,
                reason="two reports say so",
            )
            _say(plan.studio, address(JOB_MASTER, job_id), body)

    plan.studio.schedule_at(draw.uniform(5, 90), happens)


def slots_differ(plan: Plan, draw: random.Random) -> None:
    """Reports that a JobMaster does not know a slot that the TaskExecutor holds for it."""
    number, wanted = draw.random(), draw.choice(plan.workers or ["worker-1"])

    def happens() -> None:
        own = address(TASK_EXECUTOR, wanted)
        state = plan.studio.replica.states.get(own)
        slots = [] if not isinstance(state, TaskExecutorState) else [
            slot for slot in state.slots.slots.values() if slot.held and slot.allocation_id and slot.job_id
        ]  # fmt: skip
        if slots:
            slot = slots[int(number * len(slots))]
            body = task_executor.AllocatedSlotsContradicted(
                job_id=slot.job_id or "", missing=(), surplus=(slot.allocation_id or "",)
            )
            _say(plan.studio, own, body)

    plan.studio.schedule_at(draw.uniform(5, 90), happens)


def report_differs(plan: Plan, draw: random.Random) -> None:
    """Reports that a TaskExecutor holds no slot."""
    wanted = draw.choice(plan.workers or ["worker-1"])

    def happens() -> None:
        manager = plan.studio.replica.states.get(RESOURCE_MANAGER)
        state = plan.studio.replica.states.get(address(TASK_EXECUTOR, wanted))
        if isinstance(manager, ResourceManagerState) and isinstance(state, TaskExecutorState):
            known = manager.workers.get(wanted)
            if known is not None:
                body = resource_manager.SlotReportContradicted(
                    resource_id=wanted, instance_id=known.instance_id, slots=tuple(state.slots.report(wanted))
                )
                _say(plan.studio, RESOURCE_MANAGER, body)

    plan.studio.schedule_at(draw.uniform(5, 90), happens)


def corrupt_checkpoint(plan: Plan, draw: random.Random) -> None:
    """Damages files of a job's newest checkpoint, undetected so far."""
    job_id = draw.choice(plan.jobs)

    def happens() -> None:
        state = _job(plan.studio, job_id)
        if state is not None and state.checkpoints.completed:
            plan.studio.storage.corrupt_uris.add(state.checkpoints.completed[-1].uri)

    plan.studio.schedule_at(draw.uniform(20, 90), happens)


def savepoint(plan: Plan, draw: random.Random) -> None:
    """Requests a savepoint, a stop with a savepoint, or the disposal of one."""
    studio, job_id = plan.studio, draw.choice(plan.jobs)
    requests: tuple[Body, ...] = (
        dispatcher.TriggerSavepoint(job_id=job_id, directory=None),
        dispatcher.StopWithSavepoint(job_id=job_id, directory=None, drain=draw.random() < 0.5),
        dispatcher.TriggerCheckpoint(job_id=job_id),
        dispatcher.DisposeSavepoint(path="memory://savepoints/none"),
    )
    studio.schedule_at(draw.uniform(5, 90), studio.request, draw.choice(requests))


def boot_fails(plan: Plan, draw: random.Random) -> None:
    """Ends a worker's process before it registers."""
    number = draw.randint(1, 4)
    plan.studio.schedule_at(
        draw.uniform(5, 60), plan.studio.masters.fail_worker_start, f"worker-{number}", "exit code 1"
    )


def masters_die(plan: Plan, draw: random.Random) -> None:
    """Kills all masters; others take over after a while."""
    studio, time = plan.studio, draw.uniform(10, 90)

    def die() -> None:
        session = studio.world.session(RESOURCE_MANAGER)
        if session is not None:
            studio.world.kill(session)

    studio.schedule_at(time, die)
    studio.schedule_at(time + draw.uniform(2, 15), studio.start_master)


def _job(studio: HistoryBuilder, job_id: str) -> StartedJob | None:
    state = studio.replica.states.get(address(JOB_MASTER, job_id))
    return state if isinstance(state, StartedJob) else None


def _say(studio: HistoryBuilder, role_address: str, body: Body) -> None:
    """A shell sends the event for its own role, if the role exists."""
    if role_address in studio.replica.states:
        studio.world.append_from_shell(role_address, OutgoingEvent(role_address, body, None))
