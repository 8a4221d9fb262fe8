"""Trouble with checkpoints: who asks for them, what goes wrong in tasks and storage, and jobs that begin with one."""

from __future__ import annotations

import random

from tailrace.schemas import dispatcher, job_master, task_executor
from tailrace.schemas.types import ExecutionState, JobStatus, SnapshotType
from tailrace.services.core.role import OutgoingEvent
from tailrace.services.simulation.checkpoint_storage import DIRECTORIES
from tailrace.services.simulation.task_events import acknowledge_checkpoint_event

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
"""As TROUBLE."""


class CheckpointChaos:
    """Steps of Chaos."""

    draw: random.Random
    world: AsyncSimulator
    job_ids: list[str]

    def draw_trouble(self) -> None:
        """How often tasks and storage fail by themselves."""
        draw = self.draw
        self.world.configuration.update(DIRECTORIES)
        self.world.barriers.trouble = CheckpointFaults(
            silent=draw.choice((0.0, 0.0, 0.05)),
            declined=draw.choice((0.0, 0.0, 0.1)),
            twice=draw.choice((0.0, 0.2)),
            late=draw.choice((0.0, 0.3, 0.7)),
            metadata=draw.choice((0.0, 0.0, 0.2)),
        )

    def calm(self, weights: dict[str, float]) -> None:
        """Jobs run for a while, and time passes, so that checkpoints are completed: then trouble is about them."""
        for kind in weights:
            if kind in CHECKPOINT_FAULT_ACTIONS:
                weights[kind] *= 3
            elif kind not in ("jostle", "late", "turn", "settle"):
                weights[kind] *= 0.2
        weights["tick"] = 12.0
        weights["stop_with_savepoint"] *= 0.2
        weights["lose_progress"] = self.draw.choice((0.0, 4.0, 10.0))
        weights["tear_checkpoint"] = self.draw.choice((0.0, 2.0))
        weights["finish_task"] = self.draw.choice((0.0, 1.0, 5.0))
        for key in [each for each in self.world.configuration if each.startswith("restart-strategy")]:
            del self.world.configuration[key]
        self.world.configuration["execution.checkpointing.interval"] = "1 s"
        self.world.configuration["state.checkpoints.num-retained"] = self.draw.choice(("1", "3"))

    def no_more_trouble(self) -> None:
        """Whatever is asked of tasks and storage is done."""
        self.world.barriers.trouble = CheckpointFaults()

    def ask_for_checkpoint(self) -> None:
        self.world.request(dispatcher.TriggerCheckpoint(job_id=self._any_job()), admitted=self._admitted())

    def ask_for_savepoint(self) -> None:
        body = dispatcher.TriggerSavepoint(job_id=self._any_job(), directory=self._directory())
        self.world.request(body, admitted=self._admitted())

    def stop_with_savepoint(self) -> None:
        drain = self.draw.random() < 0.5
        body = dispatcher.StopWithSavepoint(job_id=self._any_job(), directory=self._directory(), drain=drain)
        self.world.request(body, admitted=self._admitted())

    def dispose_savepoint(self) -> None:
        self.world.request(dispatcher.DisposeSavepoint(path=self._savepoint()), admitted=self._admitted())

    def submit_from_savepoint(self) -> None:
        """A job that begins with what another has left, or with what is not there."""
        path = self._savepoint()
        if path in self.world.barriers.storage.metadata or self.draw.random() < 0.2:
            self.job_ids.append(f"j{len(self.job_ids) + 1}")
            self.world.request(
                dispatcher.SubmitJob(
                    job_id=self.job_ids[-1], job_graph=any_job(self.draw), savepoint_path=path
                )
            )

    def lose_progress(self) -> None:
        """What a task was to go on from is gone."""
        found = [(process, each) for process in self.world.processes() for each in sorted(process.running)]
        can_go_back = [
            (process, each)
            for process, each in found
            if self.world.truth.states[f"job_master/{process.running[each][0]}"].checkpoints.completed
        ]
        # A job that has nothing to go back to fails.
        chosen = can_go_back if self.draw.random() < 0.95 else found
        if chosen:
            process, attempt = self.draw.choice(chosen)
            process.report(attempt, ExecutionState.FAILED, "its changelog is gone", progress_lost=True)

    def tear_checkpoint(self) -> None:
        """Files of a checkpoint are damaged; nobody notices yet."""
        storage = self.world.barriers.storage
        if storage.metadata:
            storage.corrupt_uris.add(self.draw.choice(sorted(storage.metadata)))

    def stray_acknowledgement(self) -> None:
        """A TaskExecutor acknowledges what it should not, or what is long over."""
        process = self._talker()
        said = [
            each.body
            for each in self.world.log[-300:]
            if isinstance(each.body, job_master.AcknowledgeCheckpoint | job_master.DeclineCheckpoint)
        ]
        attempts = [
            each.body.execution_attempt_id
            for each in self.world.log[-300:]
            if isinstance(each.body, task_executor.SubmitTask)
        ]
        if process is None or not attempts:
            return
        body = self.draw.choice(said) if said else self._any_acknowledgement(attempts)
        if self.draw.random() < 0.7:
            body = stray_acknowledgement(self.draw, body, lambda: self.draw.choice(attempts))
        state = self.world.truth.states.get(f"job_master/{body.job_id}")
        if state is None:
            return
        pending = state.checkpoints.pending.get(body.checkpoint_id)
        # What it has not done it does not say of itself.
        if pending is None or body.execution_attempt_id not in pending.awaited:
            process.mean_to_say(process.leads[0], OutgoingEvent(f"job_master/{body.job_id}", body, None))

    def _any_acknowledgement(self, attempts: list[str]) -> job_master.AcknowledgeCheckpoint:
        job_id, number = self._any_job(), self.draw.randint(1, 3)
        body = acknowledge_checkpoint_event(job_id, self.draw.choice(attempts), number).body
        assert isinstance(body, job_master.AcknowledgeCheckpoint)
        return body

    def _talker(self) -> SimulatedProcess | None:
        workers = self.world.workers
        found = [workers[each] for each in sorted(workers) if workers[each].registered]
        return self.draw.choice(found) if found else None

    def _any_job(self) -> str:
        """Mostly one that runs."""
        running = [
            each
            for each in self.job_ids
            if (state := self.world.truth.states.get(f"job_master/{each}")) is not None
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
            for uri, each in self.world.barriers.storage.metadata.items()
            if each.checkpoint.snapshot_type is SnapshotType.SAVEPOINT
        )
        return self.draw.choice(there) if there and self.draw.random() < 0.9 else "memory://savepoints/none"
