"""Requests for checkpoints, faults of tasks and storage, and jobs that start from a checkpoint."""

from __future__ import annotations

import random

from msgspec.structs import replace

from tailrace.schemas import dispatcher, job_master
from tailrace.schemas.body import Body
from tailrace.schemas.types import ExecutionState, JobStatus, ParallelismBounds, SnapshotType
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.job_master.state import StartedJob
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES
from tailrace.services.simulation.task_events import acknowledgement_of

from ...submitted_tasks import submitted_tasks
from ..async_simulator import AsyncSimulator, SimulatedProcess
from .checkpoints import CheckpointFaults, stray_acknowledgement
from .jobs import any_job

CHECKPOINT_FAULT_ACTIONS = {
    "ask_for_checkpoint": 2.0,
    "ask_for_savepoint": 2.0,
    "stop_with_savepoint": 1.0,
    "dispose_savepoint": 0.7,
    "submit_from_savepoint": 1.0,
    "lose_progress": 1.5,
    "tear_checkpoint": 0.7,
    "stray_acknowledgement": 3.0,
}
"""As FAULT_ACTIONS."""


class CheckpointChaos:
    """Steps of Chaos."""

    draw: random.Random
    world: AsyncSimulator
    job_ids: list[str]

    def _any_tenant(self) -> str:
        raise NotImplementedError

    def draw_trouble(self) -> None:
        """Draws how often tasks and storage fail by themselves."""
        draw = self.draw
        self.world.configuration.update(DIRECTORIES)
        self.world.task_state.faults = CheckpointFaults(
            silent=draw.choice((0.0, 0.0, 0.05)),
            declined=draw.choice((0.0, 0.0, 0.1)),
            twice=draw.choice((0.0, 0.2)),
            late=draw.choice((0.0, 0.3, 0.7)),
            metadata=draw.choice((0.0, 0.0, 0.2)),
        )

    def calm(self, weights: dict[str, float]) -> None:
        """Lets jobs run for longer, so that checkpoints complete, and makes faults of checkpoints more frequent."""
        for kind in weights:
            if kind in CHECKPOINT_FAULT_ACTIONS:
                weights[kind] *= 3
            elif kind not in ("interleave", "late", "turn", "settle"):
                weights[kind] *= 0.2
        weights["tick"] = 12.0
        weights["stop_with_savepoint"] *= 0.2
        weights["lose_progress"] = self.draw.choice((0.0, 4.0, 10.0))
        weights["tear_checkpoint"] = self.draw.choice((0.0, 2.0))
        weights["finish_task"] = self.draw.choice((0.0, 1.0, 5.0))
        for key in [item for item in self.world.configuration if item.startswith("restart-strategy")]:
            del self.world.configuration[key]
        self.world.configuration["execution.checkpointing.interval"] = "1 s"
        self.world.configuration["state.checkpoints.num-retained"] = self.draw.choice(("1", "3"))

    def no_more_trouble(self) -> None:
        """Tasks and storage fail no more."""
        self.world.task_state.faults = CheckpointFaults()

    def ask_for_checkpoint(self) -> None:
        body = dispatcher.TriggerCheckpoint(job_id=self._any_job())
        self.world.request(body, admitted=self._admitted(), tenant=self._any_tenant())

    def ask_for_savepoint(self) -> None:
        body = dispatcher.TriggerSavepoint(job_id=self._any_job(), directory=self._directory())
        self.world.request(body, admitted=self._admitted(), tenant=self._any_tenant())

    def stop_with_savepoint(self) -> None:
        drain = self.draw.random() < 0.5
        body = dispatcher.StopWithSavepoint(job_id=self._any_job(), directory=self._directory(), drain=drain)
        self.world.request(body, admitted=self._admitted(), tenant=self._any_tenant())

    def rescale(self, draw: random.Random) -> None:
        """A client asks for another parallelism of a job, or of one of its vertices."""
        job_id = draw.choice(self.job_ids)
        job, bounds, parallelism = self._started_job(job_id), {}, draw.choice((1, 1, 2, 2, 3, 4, 0))
        if job is not None and draw.random() < 0.4:
            vertex = draw.choice(job.topology.in_order)
            bounds[draw.choice((vertex.name, vertex.vertex_id))] = ParallelismBounds(
                lower_bound=1, upper_bound=draw.randint(1, 4)
            )
        body = dispatcher.RescaleJob(
            job_id=job_id,
            parallelism=None if bounds and draw.random() < 0.7 else parallelism,
            bounds=bounds,
        )
        tenant = "" if job is None or draw.random() < 0.1 else job.tenant
        self.world.request(body, admitted=draw.choice((1, 1, 1, 2)), tenant=tenant)

    def dispose_savepoint(self) -> None:
        body = dispatcher.DisposeSavepoint(path=self._savepoint())
        self.world.request(body, admitted=self._admitted(), tenant=self._any_tenant())

    def submit_from_savepoint(self) -> None:
        """A job starts from a savepoint of another one, or from one that does not exist."""
        path = self._savepoint()
        if path in self.world.task_state.storage.metadata or self.draw.random() < 0.2:
            self.job_ids.append(f"j{len(self.job_ids) + 1}")
            self.world.request(
                dispatcher.SubmitJob(
                    job_id=self.job_ids[-1], job_graph=any_job(self.draw), savepoint_path=path
                ),
                tenant=self._any_tenant(),
            )

    def lose_progress(self) -> None:
        """The changelog of a task is gone."""
        results = [(process, item) for process in self.world.processes() for item in sorted(process.running)]
        can_go_back = [
            (process, element)
            for process, element in results
            if (job := self._started_job(process.running[element][0])) is not None
            and job.checkpoints.completed
        ]
        # A job without a checkpoint fails.
        chosen = can_go_back if self.draw.random() < 0.95 else results
        if chosen:
            process, attempt = self.draw.choice(chosen)
            process.report(attempt, ExecutionState.FAILED, "its changelog is gone", progress_lost=True)

    def tear_checkpoint(self) -> None:
        """Files of a checkpoint are damaged, which is detected later."""
        storage = self.world.task_state.storage
        if storage.metadata:
            storage.corrupt_uris.add(self.draw.choice(sorted(storage.metadata)))

    def stray_acknowledgement(self) -> None:
        """A TaskExecutor acknowledges a wrong checkpoint, or an old one."""
        process = self._talker()
        events = [
            record.body
            for record in self.world.accepted(300)
            if isinstance(record.body, job_master.AcknowledgeCheckpoint | job_master.DeclineCheckpoint)
        ]
        attempts = [
            task.execution_attempt_id
            for task in submitted_tasks(entry.body for entry in self.world.accepted(300))
        ]
        if process is None or not attempts:
            return
        body = self.draw.choice(events) if events else self._any_acknowledgement(attempts)
        if self.draw.random() < 0.7:
            body = stray_acknowledgement(self.draw, body, lambda: self.draw.choice(attempts))
        body = _without_stops(process, body)
        if f"job_master/{body.job_id}" not in self.world.truth.states:
            return
        job = self._started_job(body.job_id)
        pending = None if job is None else job.checkpoints.pending.get(body.checkpoint_id)
        # A TaskExecutor does not acknowledge for a task that has not. The event is appended at once: one that waits
        # could be behind the trigger of a checkpoint that there is not yet.
        named = (
            [part.execution_attempt_id for part in body.acknowledgements]
            if isinstance(body, job_master.AcknowledgeCheckpoint)
            else [body.execution_attempt_id]
        )
        if pending is None or not any(attempt in pending.awaited for attempt in named):
            process.append_now(process.leads[0], OutgoingEvent(f"job_master/{body.job_id}", body, None))

    def _any_acknowledgement(self, attempts: list[str]) -> job_master.AcknowledgeCheckpoint:
        job_id, number = self._any_job(), self.draw.randint(1, 3)
        part = acknowledgement_of(self.draw.choice(attempts))
        return job_master.AcknowledgeCheckpoint(job_id=job_id, checkpoint_id=number, acknowledgements=(part,))

    def _talker(self) -> SimulatedProcess | None:
        workers = self.world.workers
        processes = [workers[worker] for worker in sorted(workers) if workers[worker].registered]
        return self.draw.choice(processes) if processes else None

    def _started_job(self, job_id: str) -> StartedJob | None:
        state = self.world.truth.states.get(f"job_master/{job_id}")
        return state if isinstance(state, StartedJob) else None

    def _any_job(self) -> str:
        """Returns a job, mostly one that runs."""
        running = [
            id_
            for id_ in self.job_ids
            if (state := self.world.truth.states.get(f"job_master/{id_}")) is not None
            and state.status is JobStatus.RUNNING
        ]
        return self.draw.choice(running if running and self.draw.random() < 0.8 else self.job_ids)

    def _admitted(self) -> int:
        return self.draw.choice((1, 1, 1, 2))

    def _directory(self) -> str | None:
        return self.draw.choice((None, None, "memory://elsewhere"))

    def _savepoint(self) -> str:
        there = sorted(
            uri
            for uri, checkpoint in self.world.task_state.storage.metadata.items()
            if checkpoint.checkpoint.snapshot_type is SnapshotType.SAVEPOINT
        )
        return self.draw.choice(there) if there and self.draw.random() < 0.9 else "memory://savepoints/none"


def _without_stops(process: SimulatedProcess, body: Body) -> Body:
    """A TaskExecutor says of no task that it stands still that does not."""
    if not isinstance(body, job_master.AcknowledgeCheckpoint):
        return body
    parts = tuple(
        part
        if process.tasks.is_stopping(part.execution_attempt_id)
        else replace(part, subtask_state=replace(part.subtask_state, stops=False))
        for part in body.acknowledgements
    )
    return replace(body, acknowledgements=parts)
